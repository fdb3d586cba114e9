//! Slots of queue pairs on static storage.

use efa_core::qp::{Depth, Srd};
use efa_core::soft::{Profile, Storage};
use efa_core::{Context, Token};

use crate::common::{required, slice, zeros};

static SINK: Storage<2, 4, 8> = Storage::new();

/// On static storage the next queue pair gets the rings and slots of the last: never while the last still reads them.
#[test]
fn a_queue_pair_made_while_another_hands_back_what_was_in_flight_has_slots_of_its_own() {
    let ctx = Context::open(SINK.start(Profile::RDMA).unwrap());
    let pd = ctx.alloc_pd().unwrap();
    let make = || pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap();
    let (mut old, other) = (make(), make());
    let (_region, whole) = slice(&pd, &[0; 24]);
    let (first, rest) = whole.split_at(8).unwrap();
    let (second, third) = rest.split_at(8).unwrap();
    old.post_recv(first, Token(1)).unwrap();
    old.post_recv(second, Token(2)).unwrap();
    drop(other);
    let (mut third, mut new, mut tokens) = (Some(third), Vec::new(), Vec::new());
    old.shut_down(
        || true,
        |event| {
            if let Some(third) = third.take() {
                let mut qp = make();
                qp.post_recv(third, Token(3)).unwrap();
                new.push(qp);
                // The old one's place is still its own.
                pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)).unwrap_err();
            }
            tokens.push(event.token());
        },
    )
    .unwrap();
    assert_eq!(tokens, [Some(Token(1)), Some(Token(2))]);
    assert_eq!(new[0].in_flight(), 1);
    drop(make());
}

static RACE: Storage<2, 4, 16> = Storage::new();

#[test]
fn threads_that_make_and_drop_queue_pairs_on_static_storage_never_share_slots() {
    let ctx = Context::open(RACE.start(Profile::RDMA).unwrap());
    let rounds = if cfg!(miri) { 12 } else { 5_000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let pd = ctx.alloc_pd().unwrap();
                for _ in 0..rounds {
                    // Two fit.
                    let Ok(mut qp) = pd.endpoint(required::<_, Srd>(&ctx), Depth::new(4, 4)) else { continue };
                    (0..4).for_each(|token| qp.post_recv(zeros(&pd, 8), Token(token)).unwrap());
                }
            });
        }
    });
}
