//! Operations that go out together, or not.

use std::mem;

use efa_core::memory::Slice;
use efa_core::{Error, Token};

use super::posts::{lent, message};
use super::{DEPTH, End, Piece, Qp, World, pattern};

impl<K: super::kind::Kind> World<K> {
    pub(super) fn batch(&mut self, node: usize, other: usize, count: u8, end: End) {
        self.exorcise(node, DEPTH as usize);
        self.with_peer(node, other, |world, known| {
            let mut pieces = Vec::new();
            for _ in 0..count {
                let token = world.token();
                let Some(mut piece) = world.piece(node) else { break };
                let bytes = pattern(token, piece.slice.len());
                piece.slice.copy_from_slice(&bytes);
                pieces.push((token, message(known, None, &bytes), piece));
            }
            let expected = world.refusal(node, known, None);
            let sends = world.srd.sends(world.nodes[node].life) as u32;
            let Qp::Up(qp) = &mut world.nodes[node].qp else { unreachable!() };
            let granted = qp.granted();
            let (mut back, mut staged): (Vec<(Slice, usize)>, Vec<_>) = (Vec::new(), Vec::new());
            let mut batch = qp.batch();
            for (token, request, Piece { slice, owner }) in pieces {
                let buffer = lent(&slice, owner);
                let in_flight = sends + staged.len() as u32;
                let expected = match expected {
                    _ if staged.len() == usize::from(granted.batch) => {
                        Some(Error::BatchFull { limit: granted.batch.into() })
                    }
                    Some(Error::QueueFailed) => expected,
                    _ if in_flight == granted.send => Some(Error::QueueFull { in_flight }),
                    _ => expected,
                };
                let result = batch.push(known.peer.send(slice), Token(token));
                assert_eq!(result.as_ref().err().map(|refused| refused.error()), expected);
                match result {
                    Ok(()) => staged.push((token, request, buffer)),
                    Err(refused) => back.push((refused.into_inner(), owner)),
                }
            }
            assert_eq!(batch.len(), staged.len());
            if !staged.is_empty() {
                world.reached.insert(match end {
                    End::Submit => "a batch submitted",
                    End::Abort => "a batch aborted",
                    End::Drop => "a batch dropped",
                    End::Forget => "a batch forgotten",
                });
            }
            match end {
                End::Submit => assert_eq!(batch.submit(), staged.len()),
                End::Abort => batch.abort(|token, buffers| {
                    let (expected, request, buffer) = staged.remove(0);
                    assert_eq!(token.0, expected);
                    let slice = buffers.into_slice().unwrap();
                    assert_eq!((lent(&slice, buffer.owner), Some(&slice[..])), (buffer, request.bytes.as_deref()));
                    back.push((slice, buffer.owner));
                }),
                End::Drop => {
                    drop(batch);
                    staged.clear();
                }
                End::Forget => {
                    mem::forget(batch);
                    for (token, request, buffer) in staged.drain(..) {
                        world.withheld(token, request.from, vec![buffer]);
                    }
                }
            }
            for (token, request, buffer) in staged {
                world.posted(token, request, vec![buffer]);
            }
            for (slice, owner) in back {
                world.give(node, Piece { slice, owner });
            }
        });
    }
}
