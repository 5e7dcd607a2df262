//! An IPsec tunnel's packet sets: ESP (RFC 4303) between two gateways in one direction, with the association's state; no
//! aggregate state.
//!
//! It counts the packets of an association, and those whose sequence number did not increase. **Missing**: keys and
//! ciphers, so nothing is encrypted or verified (and the replay window of RFC 4303 section 3.4.3 must not be updated
//! before verification); IKE; and a key field for the SPI, so two associations between the same gateways share a set
//! here.

use braid_nf::packet::key::FieldId;
use braid_nf::prelude::*;

const ESP: u8 = 50;

/// The state of an association.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Association {
    spi: u32,
    highest: u32,
    packets: u32,
    not_growing: u32,
}

network_function! {
    /// The skeleton of an IPsec gateway.
    #[derive(Debug)]
    pub struct IpsecTunnel {}
}

impl NetworkFunction for IpsecTunnel {
    type Set = Association;
    const NAME: &'static str = "ipsec_tunnel";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::new("tunnel", &[FieldId::IpSrc, FieldId::IpDst]).only(&[ESP]))
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Association>) -> Handled {
        let mut association = Association::default();
        let verdict = self.packet(cx, packet, &mut association)?;
        let _room = set.register(cx, association);
        Ok(verdict)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, association: &mut Association) -> Handled {
        if let [a, b, c, d, e, f, g, h, ..] = *packet.ip_payload() {
            let number = u32::from_be_bytes([e, f, g, h]);
            association.spi = u32::from_be_bytes([a, b, c, d]);
            association.packets += 1;
            association.not_growing += u32::from(number <= association.highest);
            association.highest = association.highest.max(number);
        }
        Ok(cx.pass())
    }

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    fn report_set(&self, key: &SetKey, association: &Association, into: &mut Findings) {
        let Association { spi, packets, not_growing, .. } = association;
        let of_each = |count: &u32, noun| format!("{count} {noun}{}", if *count == 1 { "" } else { "s" });
        let (packets, not_growing) = (of_each(packets, "packet"), of_each(not_growing, "number"));
        into.find("association", key, format!("SPI {spi:#010x}: {packets}, {not_growing} not growing"));
    }
}
