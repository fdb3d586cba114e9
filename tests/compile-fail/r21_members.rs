//! A queue pair of a group stays in it: its completions are in the group's queue (R21).

use efa_core::qp::{Depth, Endpoint, Group, Member, MemberId, Srd};
use efa_core::soft::SoftDevice;

type Pairs = Group<SoftDevice, Srd, 4>;

fn polled_by_itself(member: Member<'_, SoftDevice, Srd>) {
    let _ = member.poll();
}

fn moved_out(member: Member<'_, SoftDevice, Srd>) -> Endpoint<SoftDevice> {
    *member
}

fn ended_by_itself(member: Member<'_, SoftDevice, Srd>) {
    let _ = member.close();
}

fn swapped(a: Member<'_, SoftDevice, Srd>, b: Member<'_, SoftDevice, Srd>) {
    core::mem::swap(&mut *a, &mut *b);
}

fn kept_while_another_is_made(group: &mut Pairs, id: MemberId) {
    let member = group.member(id).unwrap();
    let _ = group.endpoint(Depth::new(4, 4));
    let _ = member.can_post();
}

fn main() {}
