//! Whether a packet is as a line says, and what variables stand for.

use std::collections::HashMap;

use super::Wrong;
use super::packet::{Field, Packet, Value};

/// What variables are bound to.
pub type Bound = HashMap<String, Value>;

/// Puts in what variables stand for; one that nothing is bound to is an error.
pub fn resolved(packet: &Packet, bound: &Bound) -> Result<Packet, Wrong> {
    let value = |value: &Value| match value {
        Value::Variable(name) => bound.get(name).cloned().ok_or_else(|| {
            Wrong::new(format!("${name} stands for nothing yet"), "the first packet that comes out with it binds it")
        }),
        Value::Packet(packet) => Ok(Value::Packet(Box::new(resolved(packet, bound)?))),
        other => Ok(other.clone()),
    };
    let fields = packet.0.iter().map(|(field, said)| Ok((*field, value(said)?)));
    Ok(Packet(fields.collect::<Result<_, Wrong>>()?))
}

/// Compares field by field those that are said; binds variables that nothing is bound to yet. Tells every difference.
pub fn differences(said: &Packet, seen: &Packet, bound: &mut Bound) -> Vec<String> {
    let mut differences = Vec::new();
    for (field, wanted) in &said.0 {
        let has = seen.field(*field);
        match (wanted, has) {
            (Value::Any, Some(_)) => {}
            (Value::Variable(name), Some(has)) => {
                let known = bound.entry(name.clone()).or_insert_with(|| has.clone());
                if known != has {
                    differences.push(format!("{} {has}, not {known}, which is ${name}", field.name()));
                }
            }
            (Value::Packet(wanted), Some(Value::Packet(has))) => {
                let inner = self::differences(wanted, has, bound);
                differences.extend(inner.into_iter().map(|text| format!("quoted: {text}")));
            }
            (wanted, Some(has)) if wanted == has => {}
            (wanted, Some(has)) => differences.push(format!("{} {has}, not {wanted}", field.name())),
            (wanted, None) if is_absent(*field, wanted) => {}
            (wanted, None) => differences.push(format!("no {}, instead of {wanted}", field.name())),
        }
    }
    differences
}

/// Whether saying it means that it is not there.
fn is_absent(field: Field, value: &Value) -> bool {
    matches!((field, value), (Field::More | Field::DontFragment, Value::Number(0)))
}
