/*
 * What Rust cannot call of DPDK: functions that are inline in its headers, and structures that differ from version to version.
 *
 * Every mbuf belongs to a buffer of Braid's pool, by number, from start to end: mbuf n has its data in buffer n. An mbuf is in
 * DPDK's hands (in the pool of mbufs, in a ring of a device) while its buffer is lent, else it only waits in `by_number`. So what
 * passes here are offsets in Braid's region; whose buffer that is, Rust knows (crates/packet/src/raw/loan.rs).
 *
 * Written for DPDK 22.11 and newer; sys.rs declares the same functions and structures.
 */
#define _GNU_SOURCE
#define ALLOW_EXPERIMENTAL_API
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_version.h>

#define BURST 64

struct braid_mbufs {
	struct rte_mempool *pool;
	char *base;
	size_t stride;
	uint32_t count;
	struct rte_mbuf *by_number[];
};

/* Part of Braid's region, or (with `foreign`) an mbuf that is not of one of its buffers, or of several. */
struct braid_frame {
	uint64_t at;
	uint32_t len;
	uint32_t unused;
	struct rte_mbuf *foreign;
};

struct braid_device {
	/* in: what is wanted; out: what there is */
	uint16_t receive_queues;
	uint16_t send_queues;
	uint16_t mtu;
	uint16_t port;
	/* out */
	uint8_t is_hashing;
	uint8_t offers_hash;
	uint8_t offers_split;
	uint8_t agrees;
	char driver[32];
};

/* How a card is to choose queues: the key of its Toeplitz hash, and the queue of each entry of the plan's indirection table. */
struct braid_hash {
	const uint8_t *key;
	const uint16_t *table;
	uint32_t key_bytes;
	uint32_t entries;
	uint32_t udp_ports; /* whether the plan hashes those, too */
};

const char *braid_dpdk_version(void)
{
	return rte_version();
}

/* 0, or a negative errno. EAL binds its caller to one processor; that is undone. */
int braid_dpdk_start(int count, char **arguments)
{
	cpu_set_t before;
	int result, kept = sched_getaffinity(0, sizeof(before), &before);

	rte_errno = 0;
	result = rte_eal_init(count, arguments);
	if (kept == 0)
		sched_setaffinity(0, sizeof(before), &before);
	if (result >= 0)
		return 0;
	return rte_errno > 0 ? -rte_errno : -EINVAL;
}

static void lay_out(struct rte_mempool *pool, void *opaque, void *object, unsigned int number)
{
	struct braid_mbufs *mbufs = opaque;
	struct rte_mbuf *mbuf = object;

	memset(mbuf, 0, sizeof(*mbuf));
	mbuf->buf_addr = mbufs->base + number * mbufs->stride;
	/* virtual addresses are what devices see, which EAL is told at its start */
	mbuf->buf_iova = (rte_iova_t)(uintptr_t)mbuf->buf_addr;
	mbuf->buf_len = mbufs->stride;
	mbuf->data_off = RTE_PKTMBUF_HEADROOM;
	mbuf->pool = pool;
	mbuf->nb_segs = 1;
	mbuf->port = RTE_MBUF_PORT_INVALID;
	rte_mbuf_refcnt_set(mbuf, 1);
	mbufs->by_number[number] = mbuf;
}

/* One mbuf for each of `count` buffers from `base` on; none of them is in the pool yet. */
struct braid_mbufs *braid_dpdk_mbufs(char *base, size_t stride, uint32_t count)
{
	struct rte_pktmbuf_pool_private sizes = { .mbuf_data_room_size = stride };
	struct braid_mbufs *mbufs = calloc(1, sizeof(*mbufs) + count * sizeof(struct rte_mbuf *));
	void *object;

	if (mbufs == NULL)
		return NULL;
	mbufs->base = base;
	mbufs->stride = stride;
	mbufs->count = count;
	mbufs->pool = rte_mempool_create_empty("braid", count, sizeof(struct rte_mbuf), 0, sizeof(sizes),
					       SOCKET_ID_ANY, 0);
	if (mbufs->pool == NULL)
		goto failed;
	if (rte_mempool_set_ops_byname(mbufs->pool, "ring_mp_mc", NULL) != 0)
		goto failed;
	rte_pktmbuf_pool_init(mbufs->pool, &sizes);
	if (rte_mempool_populate_default(mbufs->pool) < 0)
		goto failed;
	rte_mempool_obj_iter(mbufs->pool, lay_out, mbufs);
	while (rte_mempool_get(mbufs->pool, &object) == 0)
		;
	return mbufs;
failed:
	rte_mempool_free(mbufs->pool);
	free(mbufs);
	return NULL;
}

void braid_dpdk_mbufs_free(struct braid_mbufs *mbufs)
{
	rte_mempool_free(mbufs->pool);
	free(mbufs);
}

uint32_t braid_dpdk_mbufs_available(const struct braid_mbufs *mbufs)
{
	return rte_mempool_avail_count(mbufs->pool);
}

/* As if it had just been allocated. */
static struct rte_mbuf *fresh(struct braid_mbufs *mbufs, uint64_t at)
{
	struct rte_mbuf *mbuf = mbufs->by_number[at / mbufs->stride];

	mbuf->data_off = at % mbufs->stride;
	mbuf->ol_flags = 0;
	mbuf->nb_segs = 1;
	mbuf->next = NULL;
	rte_mbuf_refcnt_set(mbuf, 1);
	return mbuf;
}

/* The mbuf of a buffer that has just been lent is free for devices. */
void braid_dpdk_mbufs_put(struct braid_mbufs *mbufs, uint64_t at)
{
	rte_mempool_put(mbufs->pool, fresh(mbufs, at));
}

/* Takes a free mbuf back: its buffer's offset, or UINT64_MAX if there is none. */
uint64_t braid_dpdk_mbufs_take(struct braid_mbufs *mbufs)
{
	void *object;

	if (rte_mempool_get(mbufs->pool, &object) != 0)
		return UINT64_MAX;
	return (char *)((struct rte_mbuf *)object)->buf_addr - mbufs->base;
}

/* Has EAL take a device ("net_tap0,iface=x", "0000:03:00.0") and finds its port: 0, or a negative errno. */
int braid_dpdk_probe(const char *arguments, const char *name, struct braid_device *device)
{
	struct rte_eth_dev_info info;
	int result = rte_dev_probe(arguments);

	if (result != 0 && result != -EEXIST)
		return result;
	result = rte_eth_dev_get_port_by_name(name, &device->port);
	if (result == 0)
		result = rte_eth_dev_info_get(device->port, &info);
	if (result == 0)
		strncpy(device->driver, info.driver_name, sizeof(device->driver) - 1);
	return result;
}

/* Devices on a bus reach memory only where they are told that it is. */
static int map_for(const struct rte_eth_dev_info *info, struct braid_mbufs *mbufs)
{
	size_t page = sysconf(_SC_PAGESIZE), len = RTE_ALIGN_CEIL(mbufs->count * mbufs->stride, page);
	int result;

	if (strcmp(rte_bus_name(rte_dev_bus(info->device)), "vdev") == 0)
		return 0;
	result = rte_extmem_register(mbufs->base, len, NULL, 0, page);
	if (result != 0 && rte_errno != EEXIST)
		return -rte_errno;
	result = rte_dev_dma_map(info->device, mbufs->base, (uintptr_t)mbufs->base, len);
	return result != 0 && rte_errno != EEXIST ? -rte_errno : 0;
}

static int set_up(struct braid_device *device, struct braid_mbufs *mbufs, const struct rte_eth_dev_info *info,
		  struct rte_eth_conf *conf, uint16_t descriptors)
{
	uint16_t queue, receive = descriptors, send = descriptors, port = device->port;
	int result = rte_eth_dev_configure(port, device->receive_queues, device->send_queues, conf);

	if (result != 0)
		return result;
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &receive, &send);
	for (queue = 0; result == 0 && queue < device->receive_queues; queue++)
		result = rte_eth_rx_queue_setup(port, queue, receive, rte_eth_dev_socket_id(port),
						&info->default_rxconf, mbufs->pool);
	for (queue = 0; result == 0 && queue < device->send_queues; queue++)
		result = rte_eth_tx_queue_setup(port, queue, send, rte_eth_dev_socket_id(port), &info->default_txconf);
	return result;
}

/* Fills the card's indirection table with queues as the plan's goes, again and again: whether it took key and table. */
static int agree(uint16_t port, const struct rte_eth_dev_info *info, const struct braid_hash *hash)
{
	struct rte_eth_rss_reta_entry64 table[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE] = { 0 };
	uint8_t key[64];
	struct rte_eth_rss_conf conf = { .rss_key = key, .rss_key_len = sizeof(key) };
	uint16_t i;

	if (info->reta_size == 0 || info->reta_size > RTE_ETH_RSS_RETA_SIZE_512 || info->hash_key_size > sizeof(key))
		return 0;
	for (i = 0; i < info->reta_size; i++) {
		table[i / RTE_ETH_RETA_GROUP_SIZE].mask |= UINT64_C(1) << (i % RTE_ETH_RETA_GROUP_SIZE);
		table[i / RTE_ETH_RETA_GROUP_SIZE].reta[i % RTE_ETH_RETA_GROUP_SIZE] = hash->table[i % hash->entries];
	}
	if (rte_eth_dev_rss_reta_update(port, table, info->reta_size) != 0)
		return 0;
	return rte_eth_dev_rss_hash_conf_get(port, &conf) == 0 && memcmp(key, hash->key, info->hash_key_size) == 0;
}

/*
 * Whether the driver hashes UDP by its addresses if it is not asked for the type: Microsoft's and virtio's hash types, and mlx5's
 * flow rules, fall back on IP. Others might deliver all of it to the first queue.
 */
static int falls_back(const char *driver)
{
	static const char *const drivers[] = { "net_ixgbe", "net_e1000_igb", "net_virtio", "mlx5_pci", "mlx5_auxiliary" };
	size_t i;

	for (i = 0; i < RTE_DIM(drivers); i++)
		if (strcmp(driver, drivers[i]) == 0)
			return 1;
	return 0;
}

/* Configures and starts a port: 0, or a negative errno. */
int braid_dpdk_open(struct braid_device *device, struct braid_mbufs *mbufs, uint16_t descriptors,
		    const struct braid_hash *hash)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf conf = { 0 };
	int udp_ports = hash->udp_ports || !falls_back(device->driver);
	int result = rte_eth_dev_info_get(device->port, &info);

	if (result != 0)
		return result;
	result = map_for(&info, mbufs);
	if (result != 0)
		return result;
	device->receive_queues = RTE_MIN(device->receive_queues, info.max_rx_queues);
	device->send_queues = RTE_MIN(device->send_queues, info.max_tx_queues);
	if (strcmp(device->driver, "net_tap") == 0)
		/* it wants as many of each */
		device->receive_queues = device->send_queues = RTE_MAX(device->receive_queues, device->send_queues);
	device->offers_hash = (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_RSS_HASH) != 0;
	device->offers_split = (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT) != 0;
	if (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_SCATTER;
	if (device->receive_queues > 1) {
		conf.rx_adv_conf.rss_conf.rss_hf =
			(RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | (udp_ports ? RTE_ETH_RSS_UDP : 0)) & info.flow_type_rss_offloads;
		if (hash->key_bytes >= info.hash_key_size && info.hash_key_size > 0) {
			conf.rx_adv_conf.rss_conf.rss_key = (uint8_t *)hash->key;
			conf.rx_adv_conf.rss_conf.rss_key_len = info.hash_key_size;
		}
	}
	device->is_hashing = conf.rx_adv_conf.rss_conf.rss_hf != 0;
	if (device->is_hashing)
		conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
	result = set_up(device, mbufs, &info, &conf, descriptors);
	if (result == 0)
		result = rte_eth_dev_start(device->port);
	device->agrees = result == 0 && device->is_hashing && hash->entries > 0 &&
			 !udp_ports == !hash->udp_ports && agree(device->port, &info, hash);
	if (result == 0)
		/* drivers that cannot do it see everything anyway, or say so in their documentation */
		rte_eth_promiscuous_enable(device->port);
	if (result == 0)
		result = rte_eth_dev_get_mtu(device->port, &device->mtu);
	return result;
}

void braid_dpdk_close(uint16_t port)
{
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
}

uint32_t braid_dpdk_receive(struct braid_mbufs *mbufs, uint16_t port, uint16_t queue, struct braid_frame *frames,
			    uint16_t room)
{
	struct rte_mbuf *burst[BURST], *mbuf;
	uint16_t i, count = rte_eth_rx_burst(port, queue, burst, RTE_MIN(room, BURST));

	for (i = 0; i < count; i++) {
		mbuf = burst[i];
		/* a driver that took a tag out did so unasked */
		if (mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)
			rte_vlan_insert(&mbuf);
		frames[i].len = rte_pktmbuf_pkt_len(mbuf);
		frames[i].foreign = mbuf->pool == mbufs->pool && mbuf->nb_segs == 1 ? NULL : mbuf;
		frames[i].at = rte_pktmbuf_mtod(mbuf, char *) - mbufs->base;
	}
	return count;
}

/* Copies an mbuf's frame, of `len` bytes, and frees it. */
void braid_dpdk_copy(struct rte_mbuf *mbuf, char *into, uint32_t len)
{
	const char *bytes = rte_pktmbuf_read(mbuf, 0, len, into);

	if (bytes != NULL && bytes != into)
		memcpy(into, bytes, len);
	rte_pktmbuf_free(mbuf);
}

/* Sends frames of buffers that have just been lent, in order; how many the device took. */
uint32_t braid_dpdk_send(struct braid_mbufs *mbufs, uint16_t port, uint16_t queue, const struct braid_frame *frames,
			 uint32_t count)
{
	struct rte_mbuf *burst[BURST];
	uint16_t i, size, sent;
	uint32_t done = 0;

	while (done < count) {
		size = RTE_MIN(count - done, (uint32_t)BURST);
		for (i = 0; i < size; i++) {
			burst[i] = fresh(mbufs, frames[done + i].at);
			burst[i]->data_len = burst[i]->pkt_len = frames[done + i].len;
		}
		sent = rte_eth_tx_burst(port, queue, burst, size);
		done += sent;
		if (sent < size)
			break;
	}
	return done;
}

/* Frames that did not reach us. */
uint64_t braid_dpdk_missed(uint16_t port)
{
	struct rte_eth_stats stats;

	return rte_eth_stats_get(port, &stats) == 0 ? stats.imissed + stats.ierrors + stats.rx_nombuf : 0;
}
