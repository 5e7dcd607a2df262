//! A plan file that says no more than what changes: the rest is what a run has already.

use toml::Spanned;

use super::{PlanFile, unplaced};

impl PlanFile {
    /// Fills in what this file leaves out and another process would have from `own`, the file of the run, which has `ports` ports.
    pub(crate) fn inherit(&mut self, own: &PlanFile, ports: u16) {
        or_own(&mut self.workers, &own.workers);
        or_own(&mut self.batch, &own.batch);
        or_own(&mut self.sets, &own.sets);
        or_own(&mut self.gather_us, &own.gather_us);
        or_own(&mut self.balance_every, &own.balance_every);
        if self.port.is_empty() {
            self.ports.get_or_insert(unplaced(i64::from(ports)));
        }
        or_own(&mut self.time, &own.time);
        or_own(&mut self.distribution, &own.distribution);
        or_own(&mut self.pages, &own.pages);
        or_own(&mut self.nic, &own.nic);
        or_own(&mut self.user, &own.user);
        or_own(&mut self.in_order, &own.in_order);
        or_own(&mut self.balance, &own.balance);
        or_own(&mut self.steer_udp_ports, &own.steer_udp_ports);
        // Where packets come from and go to cannot change, so the file need not say it. A plan for captures runs between interfaces, as with `run --port`.
        if self.port.is_empty() && !own.port.is_empty() {
            self.lay_ports(own.port.clone());
        }
        if self.input.from.is_empty() {
            self.input = own.input.clone();
        }
        if self.output.to.is_empty() {
            self.output = own.output.clone();
        }
    }
}

/// Keeps what is written; otherwise takes what the run has, which stands nowhere in this file.
fn or_own<T: Clone>(place: &mut Option<Spanned<T>>, own: &Option<Spanned<T>>) {
    if place.is_none() {
        *place = own.as_ref().map(|own| unplaced(own.get_ref().clone()));
    }
}
