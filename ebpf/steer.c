// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Receive-side scaling in front of AF_XDP sockets, for interfaces that have none.
 *
 * Every receive queue has a socket for each worker. The program hashes a packet as crates/steer/src/steering.rs does, with the
 * plan's fields, key and indirection table, and hands it to the worker's socket at the packet's own queue: a socket of another
 * queue would not be given it.
 *
 * What it does not understand (no IP, label stacks, more than two tags, more than eight IPv6 extension headers) goes to the worker of
 * the queue, which parses all packets anyway and hands on what is another one's. Nothing is written to a packet.
 *
 * It has to be accepted with CAP_BPF and CAP_NET_ADMIN alone. Without CAP_PERFMON the verifier allows no pointer whose distance
 * from its object varies: so headers stand at known places, what is behind options is copied by the kernel, and tables are maps with
 * small elements.
 *
 * Built by `cargo xtask ebpf --write`; the object lies beside this file.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ALWAYS static __always_inline
#define APART static __noinline /* so that the compiler does not make one out of two places in a packet */
#define INPUT_MAX 36 /* bytes that are hashed: two IPv6 addresses, two ports */
#define TAGS_MAX 2
#define EXTENSIONS_MAX 8
#define FAR 1020 /* bytes from an IP header within which crates/packet/src/parse.rs looks for what follows */
#define NOT_UNDERSTOOD -1

/* The bits of `hashed`. */
#define SOURCE 1
#define DESTINATION 2
#define SOURCE_PORT 4
#define DESTINATION_PORT 8

/* The values of `order`. */
#define AS_THEY_STAND 0
#define SMALLER_FIRST 1
#define EXCHANGED 2

/* The plan. Written before the program is verified, so the kernel leaves out what a plan does not use. */
volatile const __u32 workers = 1;
volatile const __u32 first_worker = 0; /* of the first queue, for what is not understood */
volatile const __u32 hashed = 0;       /* no field: nothing is understood */
volatile const __u32 order = AS_THEY_STAND;
volatile const __u32 udp_ports = 1; /* those of UDP are hashed where those of other protocols are */
volatile const __u32 entry_mask = 0;
volatile const __u32 walks = 0; /* the kernel has bpf_xdp_load_bytes (Linux 5.18); else options and extensions are not understood */

/* By queue, then by worker. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} sockets SEC(".maps");

/* The indirection table: the worker of each entry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} indirection SEC(".maps");

/* What each value of each input byte contributes to the Toeplitz hash: the key, made into tables of 256. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, INPUT_MAX * 256);
} toeplitz SEC(".maps");

/* One end of a connection, in network order; an IPv4 address is the first word. */
struct end {
	__u32 address[4];
	__u16 port;
};

struct packet {
	struct end source, destination;
	__u32 is_v6;
};

/* Finds the IP header behind at most two tags, as an address and as a distance: its Ethernet type, or 0. */
ALWAYS __u16 find_ip(void *data, void *end, void **ip, __u32 *l3)
{
	struct ethhdr *link = data;
	if ((void *)(link + 1) > end)
		return 0;
	__be16 kind = link->h_proto;
	void *at = link + 1;
	*l3 = sizeof(*link);
#pragma unroll
	for (int i = 0; i < TAGS_MAX; i++) {
		if (kind != bpf_htons(0x8100) && kind != bpf_htons(0x88a8) && kind != bpf_htons(0x9100))
			break;
		if (at + 4 > end)
			return 0;
		kind = *(__be16 *)(at + 2);
		at += 4;
		*l3 += 4;
	}
	*ip = at;
	return bpf_ntohs(kind);
}

/* Whether packets of this protocol have ports that are hashed. */
ALWAYS int uses_ports(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_SCTP || (protocol == IPPROTO_UDP && udp_ports);
}

/* Both ports, if those of the protocol are hashed and they are there. */
ALWAYS void read_ports(struct packet *packet, __u8 protocol, void *at, void *end)
{
	__u16 *ports = at;
	if (!uses_ports(protocol) || (void *)(ports + 2) > end)
		return;
	packet->source.port = ports[0];
	packet->destination.port = ports[1];
}

/* The same at a distance from the frame's first byte that varies. */
ALWAYS void load_ports(struct packet *packet, __u8 protocol, struct xdp_md *ctx, __u32 at)
{
	__u16 ports[2];
	if (!uses_ports(protocol) || bpf_xdp_load_bytes(ctx, at, ports, sizeof(ports)))
		return;
	packet->source.port = ports[0];
	packet->destination.port = ports[1];
}

APART int read_v4(struct packet *packet, struct iphdr *ip, void *end, struct xdp_md *ctx, __u32 l3)
{
	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5 || (ip->ihl > 5 && !walks))
		return NOT_UNDERSTOOD;
	packet->source.address[0] = ip->saddr;
	packet->destination.address[0] = ip->daddr;
	/* Later pieces of a datagram have no ports. */
	if (ip->frag_off & bpf_htons(0x1fff))
		return 0;
	if (ip->ihl == 5)
		read_ports(packet, ip->protocol, ip + 1, end);
	else
		load_ports(packet, ip->protocol, ctx, l3 + ip->ihl * 4);
	return 0;
}

/* The numbers that crates/packet/src/parse.rs walks over. */
ALWAYS int is_extension(__u8 protocol)
{
	switch (protocol) {
	case 0: case 43: case 44: case 51: case 60: case 135: case 139: case 140:
		return 1;
	}
	return 0;
}

/* What all extension headers begin with, and the offset of a fragment's. */
struct extension {
	__u8 next, length;
	__be16 fragment;
};

/* Walks over the extension headers of a packet; finds the protocol behind them and its ports. */
ALWAYS int walk(struct packet *packet, __u8 protocol, struct xdp_md *ctx, __u32 l3)
{
	__u32 at = sizeof(struct ipv6hdr);
	struct extension header;
	for (int i = 0; i < EXTENSIONS_MAX && is_extension(protocol) && at <= FAR; i++) {
		if (bpf_xdp_load_bytes(ctx, l3 + at, &header, sizeof(header)))
			return NOT_UNDERSTOOD;
		if (protocol == IPPROTO_FRAGMENT && header.fragment & bpf_htons(0xfff8))
			return 0; /* a later piece of a datagram */
		if (protocol == IPPROTO_FRAGMENT)
			at += 8;
		else if (protocol == IPPROTO_AH)
			at += (header.length + 2) * 4; /* RFC 4302 section 2.2 */
		else
			at += (header.length + 1) * 8; /* RFC 8200 section 4 */
		at &= 4095; /* changes nothing; the verifier sees the same behind each header */
		protocol = header.next;
	}
	if (is_extension(protocol) || at > FAR)
		return NOT_UNDERSTOOD;
	load_ports(packet, protocol, ctx, l3 + at);
	return 0;
}

APART int read_v6(struct packet *packet, struct ipv6hdr *ip, void *end, struct xdp_md *ctx, __u32 l3)
{
	if ((void *)(ip + 1) > end || ip->version != 6)
		return NOT_UNDERSTOOD;
	packet->is_v6 = 1;
	__builtin_memcpy(packet->source.address, &ip->saddr, 16);
	__builtin_memcpy(packet->destination.address, &ip->daddr, 16);
	if (is_extension(ip->nexthdr))
		return walks ? walk(packet, ip->nexthdr, ctx, l3) : NOT_UNDERSTOOD;
	read_ports(packet, ip->nexthdr, ip + 1, end);
	return 0;
}

ALWAYS void exchange(struct packet *packet)
{
	struct end source = packet->source;
	packet->source = packet->destination;
	packet->destination = source;
}

/* What is not hashed is zero, and contributes nothing. */
ALWAYS void leave_out(struct packet *packet)
{
	if (!(hashed & SOURCE))
		__builtin_memset(packet->source.address, 0, 16);
	if (!(hashed & DESTINATION))
		__builtin_memset(packet->destination.address, 0, 16);
	if (!(hashed & SOURCE_PORT))
		packet->source.port = 0;
	if (!(hashed & DESTINATION_PORT))
		packet->destination.port = 0;
}

/* Compared as numbers: address, then port. */
ALWAYS int is_greater(struct end *a, struct end *b)
{
#pragma unroll
	for (int i = 0; i < 4; i++)
		if (a->address[i] != b->address[i])
			return bpf_ntohl(a->address[i]) > bpf_ntohl(b->address[i]);
	return bpf_ntohs(a->port) > bpf_ntohs(b->port);
}

/* What `count` bytes contribute from this place of the input on. */
ALWAYS __u32 hash_at(__u32 place, const void *bytes, __u32 count)
{
	__u32 hash = 0;
#pragma unroll
	for (__u32 i = 0; i < count; i++) {
		__u32 key = (place + i) * 256 + ((const __u8 *)bytes)[i];
		__u32 *contribution = bpf_map_lookup_elem(&toeplitz, &key);
		hash ^= contribution ? *contribution : 0;
	}
	return hash;
}

/* Addresses of IPv4 and none at all take the room of IPv4's. */
ALWAYS __u32 hash_of(struct packet *packet)
{
	if (packet->is_v6 && (hashed & (SOURCE | DESTINATION)))
		return hash_at(0, packet->source.address, 16) ^ hash_at(16, packet->destination.address, 16) ^
		       hash_at(32, &packet->source.port, 2) ^ hash_at(34, &packet->destination.port, 2);
	return hash_at(0, packet->source.address, 4) ^ hash_at(4, packet->destination.address, 4) ^
	       hash_at(8, &packet->source.port, 2) ^ hash_at(10, &packet->destination.port, 2);
}

/* The worker to which the plan steers a packet. */
ALWAYS int worker_of(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end, *ip = data;
	struct packet packet = {};
	if (!hashed)
		return NOT_UNDERSTOOD;
	__u32 l3 = 0;
	__u16 kind = find_ip(data, end, &ip, &l3);
	if (kind != ETH_P_IP && kind != ETH_P_IPV6)
		return NOT_UNDERSTOOD;
	if (kind == ETH_P_IP ? read_v4(&packet, ip, end, ctx, l3) : read_v6(&packet, ip, end, ctx, l3))
		return NOT_UNDERSTOOD;
	if (order == EXCHANGED)
		exchange(&packet);
	leave_out(&packet);
	if (order == SMALLER_FIRST && is_greater(&packet.source, &packet.destination))
		exchange(&packet);
	__u32 entry = hash_of(&packet) & entry_mask;
	__u32 *worker = bpf_map_lookup_elem(&indirection, &entry);
	return worker ? (int)*worker : NOT_UNDERSTOOD;
}

/* What is attached. */
SEC("xdp")
int steer(struct xdp_md *ctx)
{
	__u32 queue = ctx->rx_queue_index;
	int worker = worker_of(ctx);
	if (worker < 0)
		worker = (first_worker + queue) % workers;
	return bpf_redirect_map(&sockets, queue * workers + worker, XDP_PASS);
}

/* For tests only, run by hand and never attached: the number of the worker, or NOT_UNDERSTOOD. */
SEC("xdp")
int tell(struct xdp_md *ctx)
{
	return worker_of(ctx);
}

char _license[] SEC("license") = "Dual MIT/GPL";
