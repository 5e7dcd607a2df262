//! Decides which functions of one chain continue in another with the state they have.

use braid_nf::Stage;
use braid_steer::planner::Changed;

use super::{ExchangeError, Exchanged};
use crate::chain::course::{Course, Order};
use crate::chain::{Chain, keys_hold};

/// Packets from outside would meet the functions in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packets from outside would meet the functions in another order, and packet sets are kept by side")]
pub struct OtherOrder;

/// Why a function cannot continue with another packet set.
pub const OTHER_SET: &str = "its packet set would be another one";

/// Checks that packets that arrive on the ports below `ports` come from the same side as under `before`: the keys of packet sets depend on it.
pub fn keeps_order(before: Order, after: Order, ports: u16) -> Result<(), OtherOrder> {
    let outside = |order| {
        let set = Course { order, ..Course::default() }.outside()?;
        Some(set.iter(ports).collect::<Vec<_>>())
    };
    if outside(before) == outside(after) { Ok(()) } else { Err(OtherOrder) }
}

/// Compares the functions of both chains; returns an error if one that is in both cannot continue.
pub(super) fn compare(old: &Chain, new: &Chain, changed: &[String]) -> Result<Exchanged, ExchangeError> {
    let mut exchanged = Exchanged::default();
    keeps_order(old.course().order, new.course().order, u16::MAX)?;
    let record = |chain: &Chain| -> Vec<_> {
        let carried =
            chain.layout().describe().iter().filter_map(|row| Some((row.name.clone(), row.bytes, row.offset?)));
        carried.collect()
    };
    if (old.layout().record_bytes, record(old)) != (new.layout().record_bytes, record(new)) {
        return Err(ExchangeError::Metadata);
    }
    for stage in new.stages() {
        let Some(before) = old.stages().iter().find(|old| old.name() == stage.name()) else {
            exchanged.added.push(stage.name().to_owned());
            continue;
        };
        let differs = changed.iter().any(|name| name == stage.name());
        goes_on(&**before, &**stage, differs)
            .and_then(|()| sees_the_same(old, new, stage.name()))
            .and_then(|()| keeps_company(old, new, stage.name()))
            .map_err(|reason| ExchangeError::Function { function: stage.name().to_owned(), reason })?;
        exchanged.kept.push(stage.name().to_owned());
    }
    let is_gone = |old: &&str| new.stages().iter().all(|new| new.name() != *old);
    let names = old.stages().iter().map(|stage| stage.name());
    exchanged.removed = names.filter(is_gone).map(str::to_owned).collect();
    Ok(exchanged)
}

/// Checks that the functions before the one named `name` change the same fields of its packet set in both chains.
fn sees_the_same(old: &Chain, new: &Chain, name: &str) -> Result<(), String> {
    let changed = |chain: &Chain| {
        let at = chain.stages().iter().position(|stage| stage.name() == name)?;
        let own = chain.stages()[at].packet_set()?.fields.into_iter().collect();
        let Changed { from_inside, from_outside, .. } = chain.changed_before(at);
        Some((from_inside.common(own), from_outside.common(own)))
    };
    if changed(old) == changed(new) && old.key_shape_of(name) == new.key_shape_of(name) {
        return Ok(());
    }
    Err("functions before it would change other fields of its packet set; put it where it was, or give it another name"
        .to_owned())
}

/// Checks that each other function that continues shares a record with the one named `name` exactly if it did before, because sets move one
/// record at a time.
fn keeps_company(old: &Chain, new: &Chain, name: &str) -> Result<(), String> {
    let group = |chain: &Chain, name: &str| {
        let at = chain.stages().iter().position(|stage| stage.name() == name)?;
        chain.group_of(at)
    };
    let (Some(before), Some(after)) = (group(old, name), group(new, name)) else { return Ok(()) };
    if new.groups()[after].shared {
        // Each function has a table of its own.
        return Ok(());
    }
    for other in new.stages().iter().map(|stage| stage.name()) {
        let (Some(was), Some(is)) = (group(old, other), group(new, other)) else { continue };
        if (was == before) != (is == after) {
            let how = if was == before { "no more" } else { "from now on" };
            return Err(format!(
                "it would keep its packet sets in one record with `{other}` {how}: functions do that meet the same packets and have the same \
                 `full`; `braid upgrade` with this file takes all along"
            ));
        }
    }
    Ok(())
}

/// Why a function cannot continue when its packet sets become shared, or are no longer shared.
fn other_sharing(becomes_shared: bool) -> &'static str {
    match becomes_shared {
        true => {
            "workers would share its packet sets, of which each has its own: packets would be steered by other fields, or sent on by one worker \
             where a function before it lets them wait (`braid plan` says which); `braid upgrade` with this file takes them along, and with \
             `workers = 1` it goes on"
        }
        false => {
            "workers share its packet sets, and each would have its own: keep what stands before it, or let `braid upgrade` take them along"
        }
    }
}

/// Checks that a function can continue as another one of the same name; `changed` says that its configuration differs.
pub fn goes_on(before: &dyn Stage, after: &dyn Stage, changed: bool) -> Result<(), String> {
    if before.kind() != after.kind() {
        let (old, new) = (before.kind(), after.kind());
        return Err(format!(
            "it is a {old} and cannot become a {new} with the same state; give the {new} another name"
        ));
    }
    // The function's own reason is more specific than one about its packet set.
    if changed {
        after.inherits(before)?;
    }
    let alike = match (before.packet_set(), after.packet_set()) {
        (Some(before), Some(after)) => keys_hold(&before, &after),
        (before, after) => before.is_none() == after.is_none(),
    };
    if !alike {
        return Err(OTHER_SET.to_owned());
    }
    if before.is_shared() != after.is_shared() {
        return Err(other_sharing(after.is_shared()).to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use braid_packet::PortSet;

    use super::*;

    #[test]
    fn an_order_is_kept_if_each_port_that_there_was_stays_on_its_side() {
        let mirrored = |outside: &[u16]| Order::Mirrored { outside: PortSet::of(outside.iter().copied()) };
        let check = |before, after, ports, keeps| {
            assert_eq!(keeps_order(before, after, ports).is_ok(), keeps, "{before:?}, then {after:?}, {ports} ports");
        };
        check(Order::Same, Order::Same, 2, true);
        check(Order::Same, mirrored(&[1]), 2, false);
        check(mirrored(&[1]), Order::Same, 2, false);
        check(mirrored(&[1]), mirrored(&[0]), 2, false);
        check(mirrored(&[1]), mirrored(&[1, 2]), 2, true);
        check(mirrored(&[1]), mirrored(&[1, 2]), 3, false);
    }
}
