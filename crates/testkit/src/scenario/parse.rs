//! Parses the words of a line into a packet.

use std::net::IpAddr;

use braid_packet::parse::protocol;

use super::packet::{Field, NAMED, Packet, Value};
use super::{Wrong, words};

/// The unread words of a line.
pub struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    /// Splits a line into words; quoted text is one word, and `#` begins a comment.
    pub fn of(line: &'a str) -> Words<'a> {
        let (mut words, mut rest) = (Vec::new(), line.trim_start());
        while !rest.is_empty() && !rest.starts_with('#') {
            let quoted = rest.starts_with('"').then(|| rest[1..].find('"').map(|end| end + 2)).flatten();
            let end = quoted.or_else(|| rest.find(char::is_whitespace)).unwrap_or(rest.len());
            words.push(&rest[..end]);
            rest = rest[end..].trim_start();
        }
        words.reverse();
        Words(words)
    }

    /// Takes the next word.
    pub fn next(&mut self) -> Option<&'a str> {
        self.0.pop()
    }

    /// The next word, without taking it.
    pub fn peek(&self) -> Option<&'a str> {
        self.0.last().copied()
    }

    /// Takes the next word if it is this one; returns whether it was.
    pub fn take(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        if is_next {
            self.next();
        }
        is_next
    }

    /// Takes the next word; the error says what belongs there.
    pub fn need(&mut self, what: &str) -> Result<&'a str, Wrong> {
        self.next().ok_or_else(|| Wrong::new("the line ends too early", format!("write {what}")))
    }
}

/// Parses a packet up to the end of the line.
pub fn packet(words: &mut Words<'_>) -> Result<Packet, Wrong> {
    let mut packet = Packet::default();
    link(&mut packet, words)?;
    match words.peek() {
        Some("type") => {
            words.next();
            packet.set(Field::Kind, Value::word(words.need("type 0x88cc")?.to_ascii_lowercase()));
        }
        Some("udp" | "tcp" | "icmp" | "icmp6" | "icmpv6" | "arp" | "ip") => headers(&mut packet, words)?,
        Some(other) if NAMED.iter().all(|(name, _)| *name != other) => {
            return Err(Wrong::new(format!("`{other}` is no kind of packet"), instead_of_kind(other)));
        }
        _ => {}
    }
    fields(&mut packet, words)?;
    Ok(packet)
}

/// Suggests a correction for an unknown kind of packet.
fn instead_of_kind(kind: &str) -> String {
    match (0..=u8::MAX).find(|number| protocol::name(*number) == Some(kind)) {
        Some(number) => {
            format!("write ip 10.0.0.5 > 192.0.2.9 proto {number}, and with data what it holds, in hexadecimal")
        }
        None => "a packet is [eth MAC > MAC] [vlan N] and one of: udp, tcp, icmp, icmp6, arp, ip, type 0x…".to_owned(),
    }
}

/// Parses Ethernet addresses and VLAN tags.
fn link(packet: &mut Packet, words: &mut Words<'_>) -> Result<(), Wrong> {
    if words.take("eth") {
        packet.set(Field::MacSource, mac(words.need("eth SOURCE > DESTINATION")?)?);
        arrow(words)?;
        packet.set(Field::MacDestination, mac(words.need("eth SOURCE > DESTINATION")?)?);
    }
    if words.take("vlan") {
        packet.set(Field::Vlan, Value::word(words.need("vlan NUMBER, NUMBER/PRIORITY, OUTER.INNER or none")?));
    }
    Ok(())
}

/// Parses the differences from an incoming packet: `[eth …] [vlan …] [SOURCE > DESTINATION] [FIELD VALUE]…`. An address
/// with a colon includes a port.
pub fn changes(words: &mut Words<'_>) -> Result<Packet, Wrong> {
    let mut packet = Packet::default();
    link(&mut packet, words)?;
    let named = |word: &str| {
        word == "quoting" || NAMED.iter().any(|(name, _)| word.strip_prefix("no-").unwrap_or(word) == *name)
    };
    if words.peek().is_some_and(|word| !named(word)) {
        let has_port = |text: &str| text.contains("]:") || (!text.contains('[') && text.split(':').count() == 2);
        let with_ports = words.peek().is_some_and(has_port);
        end(&mut packet, words, with_ports, Field::Source, Field::SourcePort)?;
        arrow(words)?;
        let with_ports = words.peek().is_some_and(has_port);
        end(&mut packet, words, with_ports, Field::Destination, Field::DestinationPort)?;
    }
    fields(&mut packet, words)?;
    Ok(packet)
}

/// Parses the kind of the packet and its two ends.
fn headers(packet: &mut Packet, words: &mut Words<'_>) -> Result<(), Wrong> {
    let kind = words.need("a kind")?;
    let kind = if kind == "icmpv6" { "icmp6" } else { kind };
    packet.set(Field::Kind, Value::word(kind));
    if matches!(kind, "icmp" | "icmp6" | "arp") {
        let operation = words.need("what it is: icmp echo, icmp unreachable, arp request, …")?;
        let known = match kind {
            "arp" => matches!(operation, "request" | "reply"),
            _ => words::icmp_type(operation, packet.version()).is_some(),
        };
        if !known {
            let help = match kind {
                "arp" => "write arp request or arp reply".to_owned(),
                _ => format!("write a number or one of: {}", words::type_names()),
            };
            return Err(Wrong::new(format!("`{kind} {operation}` is not known"), help));
        }
        let version = packet.version();
        let name = words::icmp_type(operation, version).map(|number| words::type_name(number, version));
        packet.set(Field::Operation, Value::Word(name.filter(|_| kind != "arp").unwrap_or(operation.to_owned())));
    }
    let with_ports = matches!(kind, "udp" | "tcp");
    end(packet, words, with_ports, Field::Source, Field::SourcePort)?;
    arrow(words)?;
    end(packet, words, with_ports, Field::Destination, Field::DestinationPort)
}

fn arrow(words: &mut Words<'_>) -> Result<(), Wrong> {
    match words.take(">") {
        true => Ok(()),
        false => {
            let what = format!("`{}` stands where > should", words.peek().unwrap_or("the end of the line"));
            Err(Wrong::new(what, "write SOURCE > DESTINATION with spaces around the arrow"))
        }
    }
}

/// Parses an end: `10.0.0.1:80`, `[2001:db8::1]:80`, `$a:$p`, `*:80`, `*`; without a port if the packet has none.
fn end(packet: &mut Packet, words: &mut Words<'_>, with_ports: bool, at: Field, port: Field) -> Result<(), Wrong> {
    let text = words.need("an address")?;
    let (address, number) = match with_ports && text != "*" {
        true => {
            let Some((address, number)) = text.rsplit_once(':') else {
                let help = "write ADDRESS:PORT, as 10.0.0.1:80 or [2001:db8::1]:80; * stands for any of both";
                return Err(Wrong::new(format!("`{text}` has no port"), help));
            };
            (address, Some(number))
        }
        false => (text, None),
    };
    if address != "*" {
        packet.set(at, self::address(address)?);
    }
    match number {
        None | Some("*") => {}
        Some(number) => packet.set(port, self::number(number)?),
    }
    Ok(())
}

fn address(text: &str) -> Result<Value, Wrong> {
    if let Some(name) = text.strip_prefix('$') {
        return variable(name);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse::<IpAddr>().map(Value::Address).map_err(|_| {
        Wrong::new(
            format!("`{text}` is no address"),
            "write one as 10.0.0.1 or 2001:db8::1, with a port as [2001:db8::1]:80",
        )
    })
}

fn mac(text: &str) -> Result<Value, Wrong> {
    let text = text.to_ascii_lowercase();
    let is_byte = |byte: &str| byte.len() == 2 && byte.bytes().all(|digit| digit.is_ascii_hexdigit());
    match text == "*" || text.split(':').count() == 6 && text.split(':').all(is_byte) {
        true if text == "*" => Ok(Value::Any),
        true => Ok(Value::Word(text)),
        false => Err(Wrong::new(format!("`{text}` is no Ethernet address"), "write one as 02:00:00:00:00:01")),
    }
}

fn variable(name: &str) -> Result<Value, Wrong> {
    match !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        true => Ok(Value::Variable(name.to_owned())),
        false => Err(Wrong::new(format!("`${name}` is no name"), "write $ and letters or digits, as $port")),
    }
}

/// Parses a decimal or hexadecimal number, or a variable.
pub fn number(text: &str) -> Result<Value, Wrong> {
    if let Some(name) = text.strip_prefix('$') {
        return variable(name);
    }
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.map(Value::Number).ok_or_else(|| Wrong::new(format!("`{text}` is no number"), "write 80, 0x50 or $name"))
}

/// Parses the fields after the ends.
fn fields(packet: &mut Packet, words: &mut Words<'_>) -> Result<(), Wrong> {
    while let Some(name) = words.next() {
        if name == "quoting" {
            let quote = self::packet(words)?;
            packet.set(Field::Quote, Value::Packet(Box::new(quote)));
            return Ok(());
        }
        if is_flags(name) && packet.word(Field::Kind) == "tcp" {
            put(packet, Field::Flags, Value::Word(sorted_flags(name)))?;
            continue;
        }
        let (name, negated) = name.strip_prefix("no-").map_or((name, false), |name| (name, true));
        let Some((_, field)) = NAMED.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
            return Err(Wrong::new(
                format!("`{name}` is not known"),
                format!("known are {}, quoting", known.join(", ")),
            ));
        };
        let value = match field {
            Field::DontFragment | Field::More => Value::Number(u64::from(!negated)),
            _ => value(*field, words.need(&format!("{name} VALUE"))?, packet)?,
        };
        put(packet, *field, value)?;
    }
    Ok(())
}

/// Sets a field that the line has not given yet.
fn put(packet: &mut Packet, field: Field, value: Value) -> Result<(), Wrong> {
    if packet.field(field).is_some() {
        return Err(Wrong::new(format!("{} is given twice", field.name()), "leave one out"));
    }
    packet.set(field, value);
    Ok(())
}

fn value(field: Field, text: &str, packet: &Packet) -> Result<Value, Wrong> {
    match field {
        _ if text == "*" => Ok(Value::Any),
        Field::Flags if is_flags(text) => Ok(Value::Word(sorted_flags(text))),
        Field::Flags => {
            let help = format!("write letters of {FLAGS}, as SA for SYN and ACK, or . for none");
            Err(Wrong::new(format!("`{text}` are no TCP flags"), help))
        }
        Field::Piece => Ok(Value::word(text)),
        Field::Checksum if matches!(text, "none" | "right" | words::WRONG) => Ok(Value::word(text)),
        Field::IpChecksum if matches!(text, "right" | words::WRONG) => Ok(Value::word(text)),
        Field::Checksum | Field::IpChecksum => {
            Err(Wrong::new(format!("a checksum is not `{text}`"), "write wrong, right, or none for UDP without one"))
        }
        Field::Code => match words::code(text, packet.version()) {
            Some(code) => Ok(Value::Number(code.into())),
            None => {
                Err(Wrong::new(format!("code `{text}` is not known"), "write a number, or port, host, net, admin, …"))
            }
        },
        Field::Data | Field::Options | Field::IpOptions | Field::Extension => bytes(text),
        _ => number(text),
    }
}

fn bytes(text: &str) -> Result<Value, Wrong> {
    if let Some(text) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        return Ok(Value::Bytes(text.as_bytes().to_vec()));
    }
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() % 2 == 0 && digits.is_ascii());
    let byte = |at: usize| u8::from_str_radix(&digits.unwrap_or_default()[at..at + 2], 16).ok();
    let bytes = digits.and_then(|digits| (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>());
    bytes.map(Value::Bytes).ok_or_else(|| Wrong::new(format!("`{text}` are no bytes"), "write 0x0a0b or \"text\""))
}

/// TCP flags in the order of their bits.
pub const FLAGS: &str = "CEUAPRSF";

fn is_flags(word: &str) -> bool {
    word == "." || word.chars().all(|letter| FLAGS.contains(letter))
}

fn sorted_flags(word: &str) -> String {
    let sorted: String = FLAGS.chars().rev().filter(|letter| word.contains(*letter)).collect();
    if sorted.is_empty() { ".".to_owned() } else { sorted }
}
