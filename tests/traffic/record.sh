#!/bin/bash
# Records the captures of this directory again: real programs between network namespaces, no real interface touched.
#
#   sudo tests/traffic/record.sh [directory]        default: the directory of this script
#
# Needs root and: apt-get install iproute2 ethtool nginx-light dnsmasq-base openssh-server openssl iperf3 nmap
#                 traceroute iputils-ping bind9-dnsutils curl wget tcpdump tshark python3
#
#        inside switches                                 gateway          provider             outside switch
#   host1..host4, printer ───── sw ───────────────────── gw ───────────── isp ───────────────── www files dns shell
#   10.1.0.11-14, .9            trunk to sw2: guest1,2    10.1.0.1         198.51.100.1/.2       203.0.113.10 .30 .53 .22
#   fd00:1::11-14, ::9          10.1.0.21-22              fd00:1::1        2001:db8:1::1/::2     2001:db8:2::10 ...
#
# The whole run lives in its own network, mount and process namespaces: when the script ends, however it ends, the
# kernel removes everything. Offloads are off, so that every recorded frame has the checksums and the size of the wire.
set -euo pipefail

if [ "${BRAID_RECORDING:-}" != inside ]; then
    out=$(realpath "${1:-$(dirname "$0")}")
    [ "$(id -u)" = 0 ] || { echo "record.sh: needs root for its own network namespaces"; exit 1; }
    for tool in ip ethtool nginx dnsmasq sshd openssl iperf3 nmap traceroute ping dig curl wget tcpdump editcap mergecap tshark python3; do
        command -v "$tool" >/dev/null || { echo "record.sh: $tool is missing, see the head of this file"; exit 1; }
    done
    exec env BRAID_RECORDING=inside unshare --net --mount --pid --uts --fork --kill-child --mount-proc "$0" "$out"
fi

out=$1
hostname office
work=$(mktemp -d /tmp/braid-record.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p /run/netns /run/sshd
mount -t tmpfs none /run/netns
ip link set lo up

# ---------------------------------------------------------------------------------------------------- the network

# host NAME: a namespace with neutral kernel settings
host() {
    ip netns add "$1"
    ip -n "$1" link set lo up
    ip netns exec "$1" sh -c 'echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad'
}

last_mac=0
# wire A PORT B PORT: a cable between two namespaces, offloads off, addresses of the local range
wire() {
    ip link add name "$2" netns "$1" type veth peer name "$4" netns "$3"
    local end
    for end in "$1 $2" "$3 $4"; do
        set -- $end
        last_mac=$((last_mac + 1))
        ip -n "$1" link set "$2" address "$(printf '02:00:00:00:00:%02x' $last_mac)"
        ip netns exec "$1" ethtool -K "$2" tx off rx off tso off gso off gro off >/dev/null 2>&1
        ip -n "$1" link set "$2" up
    done
}

# address NAME DEVICE IPV4/LEN IPV6/LEN
address() {
    ip -n "$1" address add "$3" dev "$2"
    ip -n "$1" address add "$4" dev "$2" nodad
}

# gateway NAME IPV4 IPV6: the default routes
gateway() {
    ip -n "$1" route add default via "$2"
    ip -n "$1" route add default via "$3"
}

router() {
    host "$1"
    ip netns exec "$1" sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
                              echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; echo 0 > /proc/sys/net/ipv6/icmp/ratelimit'
}

# switch NAME: a learning bridge
switch() {
    host "$1"
    ip -n "$1" link add name switch0 type bridge mcast_snooping 0
    ip -n "$1" link set switch0 up
}

# plug SWITCH PORT
plug() {
    ip -n "$1" link set "$2" master switch0
}

inside_hosts="host1 host2 host3 host4"
build_network() {
    router gw; router isp; switch sw; switch sw2; switch osw
    wire sw uplink gw in0; plug sw uplink;  address gw in0 10.1.0.1/24 fd00:1::1/64
    wire gw out0 isp cust
    address gw out0 198.51.100.2/30 2001:db8:1::2/64
    address isp cust 198.51.100.1/30 2001:db8:1::1/64
    gateway gw 198.51.100.1 2001:db8:1::1
    ip -n isp route add 10.1.0.0/24 via 198.51.100.2
    ip -n isp route add fd00:1::/64 via 2001:db8:1::2
    wire osw uplink isp srv; plug osw uplink; address isp srv 203.0.113.1/24 2001:db8:2::1/64

    local n name at=11
    for name in $inside_hosts; do
        host "$name"; wire sw "$name" "$name" eth0; plug sw "$name"
        address "$name" eth0 "10.1.0.$at/24" "fd00:1::$at/64"; gateway "$name" 10.1.0.1 fd00:1::1
        at=$((at + 1))
    done
    host printer; wire sw printer printer eth0; plug sw printer
    address printer eth0 10.1.0.9/24 fd00:1::9/64; gateway printer 10.1.0.1 fd00:1::1
    wire sw trunk sw2 trunk; plug sw trunk; plug sw2 trunk
    for n in 1 2; do
        host guest$n; wire sw2 guest$n guest$n eth0; plug sw2 guest$n
        address guest$n eth0 10.1.0.2$n/24 fd00:1::2$n/64; gateway guest$n 10.1.0.1 fd00:1::1
    done
    host cam1; host cam2; wire cam1 eth0 cam2 eth0 # two cameras on a cable of their own: VLAN 20 of the tagged capture
    for n in 1 2; do address cam$n eth0 10.2.0.1$n/24 fd00:2::1$n/64; done
    for name in www:10 shell:22 files:30 dns:53; do
        n=${name#*:} name=${name%:*}
        host "$name"; wire osw "$name" "$name" eth0; plug osw "$name"
        address "$name" eth0 "203.0.113.$n/24" "2001:db8:2::$n/64"; gateway "$name" 203.0.113.1 2001:db8:2::1
    done
    # a narrow link towards the file server: path MTU discovery has something to discover
    ip -n isp route add 203.0.113.30/32 dev srv mtu lock 1400
}

# on NAME command...: runs it on that host
on() {
    local name=$1
    shift
    ip netns exec "$name" "$@"
}

# ---------------------------------------------------------------------------------------------------- the servers

web_server() { # NAME ROOT
    mkdir -p "$work/$1"
    openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=$1.example" \
        -keyout "$work/$1/key.pem" -out "$work/$1/cert.pem" 2>/dev/null
    cat >"$work/$1/nginx.conf" <<CONF
user root; daemon off; pid $work/$1/pid; error_log /dev/null;
events { }
http {
    access_log off; server_tokens off; keepalive_timeout 5s; client_body_temp_path $work/$1/body;
    types { text/html html; text/css css; image/png png; application/octet-stream bin; }
    server {
        listen 80; listen [::]:80; listen 443 ssl http2; listen [::]:443 ssl http2; root $2;
        ssl_certificate $work/$1/cert.pem; ssl_certificate_key $work/$1/key.pem;
        location /upload/ { client_max_body_size 4m; dav_methods PUT; root $work/$1; }
        location /old { return 301 /index.html; }
    }
}
CONF
    mkdir -p "$work/$1/upload"
    on "$1" nginx -c "$work/$1/nginx.conf" -p "$work/$1" &
}

pages() { # three small sites: a page with style sheet, pictures of several sizes, links to the others
    local site n
    for site in news shop wiki; do
        mkdir -p "$work/pages/$site"
        {
            echo "<html><head><title>$site</title><link rel=stylesheet href=/$site/style.css></head><body>"
            for n in 1 2 3 4 5 6; do echo "<p>$site story $n</p><img src=/$site/picture$n.png>"; done
            echo "<a href=/shop/index.html>shop</a></body></html>"
        } >"$work/pages/$site/index.html"
        head -c 3000 /dev/zero | tr '\0' 'c' >"$work/pages/$site/style.css"
        for n in 1 2 3 4 5 6; do head -c $((n * n * 700)) /dev/urandom >"$work/pages/$site/picture$n.png"; done
    done
    cp "$work/pages/news/index.html" "$work/pages/index.html"
    mkdir -p "$work/files"
    head -c 250000 /dev/urandom >"$work/files/archive.bin"
    head -c 900 /dev/urandom >"$work/files/note.bin"
}

start_servers() {
    pages
    web_server www "$work/pages"
    web_server files "$work/files"
    local n
    {
        echo "no-resolv"; echo "no-hosts"; echo "local=/example/"; echo "cache-size=0"
        for n in www:10 shell:22 files:30 dns:53; do
            echo "host-record=${n%:*}.example,203.0.113.${n#*:},2001:db8:2::${n#*:}"
        done
        for n in $(seq 400); do echo "host-record=site$n.example,203.0.113.$((n % 200 + 20)),2001:db8:2::$n"; done
        # an answer of 2.9 KB: truncated over plain UDP, in fragments with EDNS, whole over TCP
        for n in $(seq 24); do echo "txt-record=big.example,$(head -c 100 /dev/zero | tr '\0' 't')$n"; done
        echo "mx-host=example,files.example,10"; echo "cname=home.example,www.example"
    } >"$work/dnsmasq.conf"
    on dns dnsmasq --keep-in-foreground --conf-file="$work/dnsmasq.conf" --pid-file="$work/dns.pid" --user=root \
        --edns-packet-max=4096 --dns-forward-max=1000 >/dev/null 2>&1 &
    ssh-keygen -q -t ed25519 -N '' -C host -f "$work/host_key"
    ssh-keygen -q -t ed25519 -N '' -C user -f "$work/user_key"
    cp "$work/user_key.pub" "$work/authorized"
    chmod 700 "$work"
    on shell /usr/sbin/sshd -D -e -f /dev/null -h "$work/host_key" -o AuthorizedKeysFile="$work/authorized" -o StrictModes=no \
        -o PermitRootLogin=yes -o UsePAM=no -o PidFile="$work/sshd.pid" -o DebianBanner=no 2>/dev/null &
    on files iperf3 -s >/dev/null 2>&1 &
    sleep 1
}

# ---------------------------------------------------------------------------------------------------- the users

quiet() { "$@" >/dev/null 2>&1 </dev/null || true; }
pause() { sleep "0.$((RANDOM % 60 + 10))"; }
resolve() { quiet on "$1" dig @203.0.113.53 +tries=1 +time=2 "$2" A; quiet on "$1" dig @2001:db8:2::53 +tries=1 +time=2 "$2" AAAA; }

# browse HOST SITE -4|-6 SCHEME: resolves, loads the page, then its parts over up to six parallel connections
browse() {
    local host=$1 site=$2 family=$3 base="$4://www.example" parts=() n
    resolve "$host" www.example
    for n in 1 2 3 4 5 6; do parts+=("$base/$site/picture$n.png" -o /dev/null); done
    local at=203.0.113.10
    [ "$family" = -4 ] || at=[2001:db8:2::10]
    local names=(--resolve "www.example:80:$at" --resolve "www.example:443:$at" -k -s "$family")
    quiet on "$host" curl "${names[@]}" "$base/$site/index.html" -o /dev/null "$base/$site/style.css" -o /dev/null
    quiet on "$host" curl "${names[@]}" --parallel --parallel-max 6 "${parts[@]}"
}

shell_work() { # HOST ADDRESS
    local options="-q -i $work/user_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    quiet on "$1" ssh $options "root@$2" 'uname; seq 500; sleep 0.3; seq 20'
    quiet on "$1" scp $options "$work/files/note.bin" "root@[$2]:$work/received.bin"
}

upload() { quiet on "$1" curl -s -T "$work/pages/shop/picture6.png" "http://$2/upload/$1.bin"; }

office_day() {
    (browse host1 news -4 http; pause; browse host1 shop -6 https; pause; browse host1 wiki -4 https) &
    (pause; browse host2 wiki -6 http; pause; browse host2 news -4 https; upload host2 203.0.113.30; upload host2 '[2001:db8:2::30]') &
    (quiet on host3 wget -q -O /dev/null --recursive --page-requisites --level=2 --delete-after -P "$work/wget3" http://203.0.113.10/news/index.html
     pause; quiet on host3 curl -s -o /dev/null http://203.0.113.30/archive.bin
     browse host3 shop -4 http) &
    (shell_work host4 203.0.113.22; pause; shell_work host4 2001:db8:2::22; browse host4 news -6 https) &
    (quiet on guest1 ping -c 8 -i 0.4 203.0.113.10; quiet on guest1 ping -c 5 -i 0.4 2001:db8:2::10
     quiet on guest1 ping -c 2 -i 0.3 -s 4000 203.0.113.10; quiet on guest1 ping -c 2 -i 0.3 -s 4000 2001:db8:2::10
     quiet on guest1 ping -c 1 -W 1 -t 1 203.0.113.10) &
    (quiet on guest2 traceroute -n -q 2 -m 6 203.0.113.10; quiet on guest2 traceroute -n -I -q 2 -m 6 203.0.113.30
     quiet on guest2 traceroute -n -T -p 80 -q 1 -m 6 203.0.113.10
     quiet on guest2 traceroute -6 -n -q 2 -m 6 2001:db8:2::10; quiet on guest2 traceroute -6 -n -I -q 1 -m 6 2001:db8:2::30) &
    (pause; quiet on printer iperf3 -c 203.0.113.30 -n 120K; quiet on printer iperf3 -c 2001:db8:2::30 -n 120K -R
     quiet on printer iperf3 -c 203.0.113.30 -u -b 4M -n 60K -l 1200) &
    local n
    for n in 1 2 3; do # refusals: closed TCP and UDP ports, a host that is not there, a name that is not there
        quiet on host1 curl -s -m 1 http://203.0.113.22:8080/
        quiet on host2 dig @203.0.113.10 +tries=1 +time=1 www.example
        quiet on host3 dig @203.0.113.53 nothing$n.example
        quiet on host4 ping -c 1 -W 1 203.0.113.99
    done
    quiet on host2 dig @203.0.113.53 +noedns +ignore big.example TXT
    quiet on host2 dig @203.0.113.53 +bufsize=4096 big.example TXT
    quiet on host2 dig @2001:db8:2::53 +bufsize=4096 big.example TXT
    quiet on host2 dig @203.0.113.53 +tcp big.example TXT
    wait_for_users
}

# LAN traffic that never passes the gateway: hosts among themselves, both VLANs
lan_day() {
    ip netns exec printer iperf3 -s >/dev/null 2>&1 & local server=$!
    ip netns exec cam2 iperf3 -s >/dev/null 2>&1 & local server2=$!
    keep="$keep $server $server2"
    sleep 1
    local name
    for name in $inside_hosts; do ip -n "$name" neigh flush dev eth0; done
    (quiet on host1 iperf3 -c 10.1.0.9 -n 80K; quiet on host1 ping -c 3 -i 0.3 10.1.0.12) &
    (quiet on host2 ping -c 3 -i 0.3 10.1.0.21; quiet on host2 ping -c 3 -i 0.3 fd00:1::22) &
    (quiet on host3 ping -c 2 -W 1 10.1.0.200; quiet on host3 ping -c 2 -i 0.3 -b 10.1.0.255) &
    (quiet on guest1 iperf3 -c fd00:1::9 -n 60K -R; pause; quiet on guest1 ping -c 2 -i 0.3 10.1.0.14) &
    (quiet on cam1 iperf3 -c 10.2.0.12 -u -b 2M -n 40K -l 1000; quiet on cam1 ping -c 3 -i 0.3 fd00:2::12) &
    (browse host4 wiki -4 http; quiet on host4 ping -c 3 -i 0.3 ff02::1%eth0) &
    wait_for_users
    # host3's cable moves to the other switch: a station move
    ip -n host3 link set eth0 down
    ip -n guest2 link set eth0 down
    local mac
    mac=$(ip -n host3 -o link show eth0 | sed 's/.*ether \([0-9a-f:]*\).*/\1/')
    ip -n guest2 link set eth0 address "$mac" up
    ip -n guest2 route replace default via 10.1.0.1
    quiet on guest2 ping -c 3 -i 0.3 10.1.0.11
    quiet on host1 ping -c 3 -i 0.3 10.1.0.22
    kill "$server" "$server2"
}

dns_day() {
    local name n
    for name in $inside_hosts; do
        for n in $(seq 150); do
            case $((RANDOM % 10)) in
                0) echo "missing$RANDOM.example A" ;;
                1) echo "example MX" ;;
                2 | 3 | 4) echo "site$((RANDOM % 400 + 1)).example AAAA" ;;
                *) echo "site$((RANDOM % 400 + 1)).example A" ;;
            esac
        done >"$work/$name.queries"
        (quiet on "$name" dig @203.0.113.53 +tries=1 -f "$work/$name.queries"
         quiet on "$name" dig @2001:db8:2::53 +tries=1 -f "$work/$name.queries"
         head -5 "$work/$name.queries" >"$work/$name.few"
         quiet on "$name" dig @203.0.113.53 +tcp -f "$work/$name.few") &
    done
    wait_for_users
}

scan_day() {
    quiet on host4 nmap -n -sn -T4 203.0.113.0/27
    quiet on host4 nmap -n -Pn -sS -T4 --max-retries 1 -p 1-600 203.0.113.10 203.0.113.22
    quiet on host4 nmap -n -Pn -sU -T4 --max-retries 1 -p 50-90 203.0.113.53
    local kind
    for kind in -sF -sX -sN -sA -sM; do quiet on host4 nmap -n -Pn $kind -T4 --max-retries 0 -p 20-40 203.0.113.22; done
    quiet on host4 nmap -n -Pn -f -sS -T4 --max-retries 0 -p 75-90 203.0.113.10
    quiet on host4 nmap -6 -n -Pn -sT -T4 --max-retries 0 -p 1-120 2001:db8:2::10
}

wait_for_users() { # all background users, not the servers and recorders
    local job
    for job in $(jobs -rp); do
        case " $keep " in *" $job "*) ;; *) wait "$job" || true ;; esac
    done
}

# ---------------------------------------------------------------------------------------------------- the recorders

recorders=
# record FILE NAME DEVICE [filter]: into the work directory
record() {
    ip netns exec "$2" tcpdump -Z root -n -U --immediate-mode -s 0 -B 8192 -i "$3" -w "$work/$1" ${4:-} 2>/dev/null &
    recorders="$recorders $!"
    until [ -s "$work/$1" ]; do sleep 0.1; done # listening once the file has its header
}

# during JOB: runs it between the start and the end of the recorders
during() {
    keep="$servers $recorders"
    "$1"
    sleep 1
    kill $recorders
    wait $recorders 2>/dev/null || true
    recorders=
}

# tagged IN OUT VID: writes an 802.1Q tag into every frame; done afterwards because not every kernel has VLAN devices
tagged() {
    python3 - "$@" <<'PYTHON'
import struct, sys
source, target, vid = open(sys.argv[1], "rb"), open(sys.argv[2], "wb"), int(sys.argv[3])
target.write(source.read(24))
while head := source.read(16):
    seconds, fraction, captured, length = struct.unpack("<IIII", head)
    frame = source.read(captured)
    target.write(struct.pack("<IIII", seconds, fraction, captured + 4, length + 4))
    target.write(frame[:12] + struct.pack(">HH", 0x8100, vid) + frame[12:])
PYTHON
}

build_network
start_servers
servers=$(jobs -rp | tr '\n' ' ')

record office.in.pcap gw in0
record gateway.0.pcap gw in0 inbound
record gateway.1.pcap gw out0 inbound
during office_day

ports="host1 host2 host3 host4 printer uplink trunk"
for port in $ports; do record "lan.$port.pcap" sw "$port" inbound; done
record trunk.pcap sw2 trunk
record cams.pcap cam1 eth0
during lan_day

record dns.pcap gw in0
during dns_day
record scan.pcap gw in0
during scan_day

cd "$work"
editcap -F pcapng office.in.pcap "$out/office.pcapng"
mergecap -F pcapng -I none -w "$out/gateway.pcapng" gateway.0.pcap gateway.1.pcap
mergecap -F pcapng -I none -w "$out/lan.pcapng" $(for port in $ports; do echo "lan.$port.pcap"; done)
tagged trunk.pcap trunk10.pcap 10
tagged cams.pcap cams20.pcap 20
mergecap -F pcap -w "$out/lan-vlan.pcap" trunk10.pcap cams20.pcap
cp scan.pcap "$out/"
gzip -9 -n -c dns.pcap >"$out/dns.pcap.gz"

echo "file packets bytes tcp udp"
for file in office.pcapng gateway.pcapng lan.pcapng lan-vlan.pcap dns.pcap.gz scan.pcap; do
    flows() { tshark -r "$out/$file" -q -z "conv,$1" 2>/dev/null | grep -c '<->' || true; }
    echo "$file $(tshark -r "$out/$file" 2>/dev/null | wc -l) $(stat -c %s "$out/$file") $(flows tcp) $(flows udp)"
done
