//! The verdict of a rule, and how the sender of a rejected packet is told.

use braid_nf::packet::parse::protocol;

use crate::firewall::conditions::names::{ICMP_CODES, ICMPV6_CODES};
use crate::firewall::conditions::values::Protocol;
use crate::firewall::rule_file::conditions::addresses::icmp_version;
use crate::firewall::rule_file::conditions::numbers::number;
use crate::firewall::rule_file::conditions::{Fits, narrow_family, narrow_protocol};
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::Reply;

/// What happens to a packet that matches a clause.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::firewall::rule_file) enum Verdict {
    Accept,
    Drop,
    Reject(Reply),
    /// The next rule decides.
    Continue,
    /// Evaluation continues after the jump that led here; in the base chain its policy decides.
    Return,
    Jump(String),
    Goto(String),
    /// The rule after this one decides; the other clauses of this rule are skipped.
    Past,
}

/// Reads a verdict, if one comes next.
pub(in crate::firewall::rule_file) fn verdict(rest: &mut Words<'_>, fits: &mut [Fits]) -> Parsed<Option<Verdict>> {
    let verdict = match rest.peek() {
        "accept" => Verdict::Accept,
        "drop" => Verdict::Drop,
        "reject" => Verdict::Reject(Reply::Usual),
        "continue" => Verdict::Continue,
        "return" => Verdict::Return,
        "jump" => Verdict::Jump(rest.peek_at(1).to_owned()),
        "goto" => Verdict::Goto(rest.peek_at(1).to_owned()),
        _ => return Ok(None),
    };
    rest.word();
    Ok(Some(match verdict {
        Verdict::Reject(_) => Verdict::Reject(reply(rest, fits)?),
        Verdict::Jump(_) | Verdict::Goto(_) if rest.word().is_empty() => {
            return wrong("a jump to nowhere", "write jump and the name of a chain");
        }
        Verdict::Jump(_) | Verdict::Goto(_) | Verdict::Return if !rest.scope.in_table => {
            return wrong(
                "there are no chains outside of tables",
                "write table inet filter { chain forward { … } } around the rules",
            );
        }
        verdict => verdict,
    }))
}

/// Codes of "destination unreachable" that both ICMP and ICMPv6 have, in the order of their numbers (`nft_reject_inet_code` of Linux).
const ICMPX_CODES: [(&str, (u8, u8)); 4] =
    [("no-route", (0, 0)), ("port-unreachable", (3, 4)), ("host-unreachable", (1, 3)), ("admin-prohibited", (13, 1))];

/// Reads how a rejected packet is answered. Within a table the default is that of nftables: port unreachable, for TCP too.
fn reply(rest: &mut Words<'_>, fits: &mut [Fits]) -> Parsed<Reply> {
    if !rest.take("with") {
        return Ok(if rest.scope.in_table { Reply::Unreachable(3, 4) } else { Reply::Usual });
    }
    let family = rest.word();
    if family == "tcp" {
        if !rest.take("reset") {
            return wrong("TCP is told by a reset", "write reject with tcp reset");
        }
        fits.iter_mut().try_for_each(|fits| narrow_protocol(&mut fits.rule, vec![Protocol(protocol::TCP)]))?;
        return Ok(Reply::Usual);
    }
    rest.take("type");
    let name = rest.word();
    let code = |codes: &[(&str, u8)]| codes.iter().find(|(known, _)| *known == name).map(|(_, code)| *code);
    let number = number(&name);
    let found = match family.as_str() {
        "icmp" => code(ICMP_CODES).or(number.and_then(|it| it.try_into().ok())).map(|code| (code, code)),
        "icmpv6" => code(ICMPV6_CODES).or(number.and_then(|it| it.try_into().ok())).map(|code| (code, code)),
        "icmpx" => {
            let by_number = number.and_then(|it| ICMPX_CODES.get(it as usize));
            ICMPX_CODES.iter().find(|(known, _)| *known == name).or(by_number).map(|(_, codes)| *codes)
        }
        _ => None,
    };
    let Some((v4, v6)) = found else {
        let instead = "write tcp reset, icmp port-unreachable, icmpv6 admin-prohibited or icmpx host-unreachable";
        return wrong(format!("`with {family} {name}` is no way to tell"), instead);
    };
    if family != "icmpx" {
        fits.iter_mut().try_for_each(|fits| narrow_family(&mut fits.rule, icmp_version(&family)))?;
    }
    Ok(Reply::Unreachable(v4, v6))
}
