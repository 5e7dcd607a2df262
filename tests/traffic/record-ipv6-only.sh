#!/bin/bash
# Records ipv6-only-inside.pcap.gz and ipv6-only-outside.pcap.gz: what a host with IPv6 only sends, and what a server with IPv4 only answers,
# with `braid run --nf nat64` between them. Needs root, tcpdump, curl, python3 and a built braid in the path (or BRAID=…).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); braid=${BRAID:-braid}; work=$(mktemp -d)
end() { kill $(jobs -p) 2>/dev/null || true; ip netns del b6in 2>/dev/null || true; ip netns del b6out 2>/dev/null || true; rm -rf "$work"; }
trap end EXIT

ip netns add b6in; ip netns add b6out
ip link add b6a type veth peer name host netns b6in
ip link add b6b type veth peer name server netns b6out
ip link set b6a up; ip link set b6b up
ip -n b6in link set host up; ip -n b6out link set lo up; ip -n b6out link set server up
ip netns exec b6in ethtool -K host tx off >/dev/null; ip netns exec b6out ethtool -K server tx off >/dev/null
ip -n b6in addr add 2001:db8:1::5/64 dev host nodad
ip -n b6out addr add 192.0.2.9/24 dev server
mac() { ip -n "$1" link show "$2" | awk '/ether/{print $2}'; }
# Frames keep their Ethernet addresses, so each end is the other's neighbour.
ip -n b6in neigh add 2001:db8:1::1 lladdr "$(mac b6out server)" dev host
ip -n b6in route add 64:ff9b::/96 via 2001:db8:1::1
ip -n b6out route add 198.51.100.0/24 dev server
ip -n b6out neigh add 198.51.100.1 lladdr "$(mac b6in host)" dev server

cd "$work"; head -c 9000 /dev/urandom > a; head -c 40000 /dev/urandom > b
cat > echo.py <<'P'
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("192.0.2.9", 7777))
s.setsockopt(socket.IPPROTO_IP, 10, 0)  # no path MTU discovery: its packets may be cut
while True:
    data, to = s.recvfrom(65536)
    s.sendto(data, to)
P
cat > ask.py <<'P'
import socket
server = "64:ff9b::192.0.2.9"
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.settimeout(2)
s.connect((server, 7777))
for n in (1, 1232, 1300, 1452, 5000):
    s.send(bytes(i % 251 for i in range(n)))
    s.recv(65536)
for port in range(9000, 9020):
    t = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    t.settimeout(1)
    t.connect((server, port))
    try:
        t.send(b"anybody there?")
        t.recv(10)
    except OSError:
        pass
P
"$braid" run --nf nat64 --port b6a --port b6b --workers 1 --set router_v6=2001:db8:1::1 >/dev/null 2>&1 &
ip netns exec b6out python3 -m http.server 80 --bind 192.0.2.9 >/dev/null 2>&1 &
ip netns exec b6out python3 echo.py &
ip netns exec b6in tcpdump -q -U -i host -Q out -w inside.pcap 'ip6 dst net 64:ff9b::/96' 2>/dev/null &
ip netns exec b6out tcpdump -q -U -i server -Q out -w outside.pcap 'ip dst host 198.51.100.1' 2>/dev/null &
sleep 3

inside() { ip netns exec b6in "$@" >/dev/null; }
inside ping -6 -c 5 -i 0.2 64:ff9b::c000:209
inside ping -6 -c 2 -i 0.2 -s 1300 64:ff9b::c000:209
for page in a b missing a b missing a b missing a b missing a b missing a b missing; do
    inside curl -g -s -o /dev/null "http://[64:ff9b::c000:209]/$page"
done
inside curl -g -s -o /dev/null "http://[64:ff9b::c000:209]:81/" || true # refused
inside python3 ask.py
sleep 1
for side in inside outside; do gzip -9 -n -c $side.pcap > "$here/ipv6-only-$side.pcap.gz"; done
