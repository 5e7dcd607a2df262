//! Compares a packet with what a line says, and binds variables.

use std::collections::HashMap;

use super::Wrong;
use super::packet::{Field, Packet, Value};

/// The values to which variables are bound.
pub type Bound = HashMap<String, Value>;

/// Replaces variables by their values; an unbound variable is an error.
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

/// Compares the fields that are given, binds variables that are still unbound, and reports every difference.
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

/// Whether a field with this value is treated as absent.
fn is_absent(field: Field, value: &Value) -> bool {
    matches!((field, value), (Field::More | Field::DontFragment, Value::Number(0)))
}
