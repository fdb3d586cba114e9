//! The roads that the rules leave open: each of the compile-fail tests' counterparts.

use efa_core::memory::{Exposed, ExposedPart, Frozen, Region, RemoteRead, RemoteReadWrite, RemoteWrite, Slice};
use efa_core::peer::{Mutual, OneWay, Peer, RemoteWindow};
use efa_core::qp::{
    AnyQueuePair, Datagram, Depth, Endpoint, Err, Init, InitAttr, QueuePair, Reset, RnrRetry, Rtr, Rts, RtsAttr,
    SendOnly, Solicited, Sqd, Sqe, Srd, Ud, Unsolicited, Wide, ops,
};
use efa_core::{Context, Error, Granted, Provider, Refused, SetRnrRetry, Token};

fn up<P: Provider>(qp: QueuePair<P, Reset, Srd>, init: InitAttr, rts: RtsAttr) -> Result<Endpoint<P>, Error> {
    Ok(qp.init(init)?.init(init)?.rtr()?.rts(rts)?)
}

fn prepared<P: Provider>(
    reset: QueuePair<P, Reset, Srd>,
    init: QueuePair<P, Init, Srd>,
) -> Result<[Endpoint<P>; 2], Refused<AnyQueuePair<P, Srd>>> {
    Ok([reset.prepare()?, init.prepare()?])
}

fn around<P: Provider>(rts: Endpoint<P>) -> Result<QueuePair<P, Err, Srd>, Error> {
    Ok(rts.drain()?.drain()?.resume()?.error()?.error()?)
}

fn from_sqe<P: Provider>(sqe: QueuePair<P, Sqe, Srd>) -> Result<Endpoint<P>, Error> {
    Ok(sqe.resume()?)
}

#[allow(clippy::too_many_arguments)]
fn down<P: Provider>(
    reset: QueuePair<P, Reset, Srd>,
    init: QueuePair<P, Init, Srd>,
    rtr: QueuePair<P, Rtr, Srd>,
    rts: QueuePair<P, Rts, Srd>,
    sqd: QueuePair<P, Sqd, Srd>,
    sqe: QueuePair<P, Sqe, Srd>,
    err: QueuePair<P, Err, Srd>,
) -> Result<[QueuePair<P, Reset, Srd>; 7], Error> {
    Ok([reset.reset()?, init.reset()?, rtr.reset()?, rts.reset()?, sqd.reset()?, sqe.reset()?, err.reset()?])
}

fn failed<P: Provider>(
    init: QueuePair<P, Init, Srd>,
    rtr: QueuePair<P, Rtr, Srd>,
    sqd: QueuePair<P, Sqd, Srd>,
    sqe: QueuePair<P, Sqe, Srd>,
) -> Result<[QueuePair<P, Err, Srd>; 4], Error> {
    Ok([init.error()?, rtr.error()?, sqd.error()?, sqe.error()?])
}

fn addresses<P: Provider>(rtr: &QueuePair<P, Rtr, Srd>, memory: &Exposed<Vec<u8>, RemoteRead>) -> Result<(), Error> {
    let (_peer, _ready) = rtr.resolve(rtr.hello().as_bytes())?;
    let _peer = rtr.resolve_address(rtr.address())?;
    memory.grant(rtr).map(|_| ())
}

fn every_length_inline<P: Provider>(
    narrow: &mut Endpoint<P>,
    wide: &mut Endpoint<P, Srd<{ ops::ALL }, Solicited, Wide>>,
    peer: &Peer<Mutual>,
    window: RemoteWindow<RemoteWrite>,
    any: &[u8],
) -> Result<(), Error> {
    narrow.post(peer.send_inline([0; 32]), Token(0))?;
    narrow.post(peer.send_inline(&[0; 32]).imm(1), Token(0))?;
    narrow.post(peer.send_inline(any), Token(0))?;
    wide.post(peer.send_inline([0; 80]), Token(0))?;
    wide.post(peer.send_inline(any).imm(1), Token(0))?;
    wide.post(peer.write_inline(&[0; 80], window), Token(0))?;
    wide.post(peer.write_inline(any, window).imm(1), Token(0))?;
    wide.batch().push(peer.write_inline([0; 0], window), Token(0))?;
    Ok(())
}

fn every_buffer<P: Provider>(
    qp: &mut Endpoint<P>,
    peer: &Peer<Mutual>,
    window: RemoteWindow<RemoteReadWrite>,
    mut slice: impl FnMut() -> Slice,
    part: ExposedPart,
    frozen: Frozen,
) -> Result<(), Error> {
    qp.post(peer.send(slice()), Token(0))?;
    qp.post(peer.send([slice(), slice()]), Token(0))?;
    qp.post(peer.send((slice(), part.clone())).imm(1), Token(0))?;
    qp.post(peer.send((frozen.clone(), slice())), Token(0))?;
    qp.post(peer.send_empty().imm(1), Token(0))?;
    qp.post(peer.send_inline(b"hello").imm(1), Token(0))?;
    qp.post(peer.write(slice(), window), Token(0))?;
    qp.post(peer.write(frozen, window).imm(1), Token(0))?;
    qp.post(peer.write(part.clone(), window), Token(0))?;
    qp.post(peer.read(slice(), window), Token(0))?;
    qp.post(peer.read(part.clone(), window), Token(0))?;
    qp.post_recv(slice(), Token(0))?;
    qp.post_recv(part.clone(), Token(0))?;
    qp.post_recv([part.clone(), part], Token(0))?;
    Ok(qp.post_recv([slice(), slice()], Token(0))?)
}

fn one_way<P: Provider>(qp: &mut Endpoint<P>, peer: &Peer<OneWay>, slice: Slice) -> Result<(), Error> {
    qp.post(peer.one_way().send(slice), Token(0))?;
    qp.post(peer.one_way().send_inline(b"hello"), Token(0))?;
    Ok(qp.post(peer.one_way().send_empty(), Token(0))?)
}

fn windows<P: Provider>(
    qp: &mut Endpoint<P, Srd<{ ops::RDMA_READ | ops::RDMA_WRITE }, Unsolicited>>,
    peer: &Peer<Mutual, Unsolicited>,
    slice: Slice,
    read: RemoteWindow<RemoteRead>,
    write: RemoteWindow<RemoteWrite>,
    frozen: Frozen,
) -> Result<(), Error> {
    qp.post(peer.read(slice, read), Token(0))?;
    Ok(qp.post(peer.write(frozen, write), Token(0))?)
}

fn kinds<P: Provider>(ctx: &Context<P>) -> Result<(), Error> {
    let pd = ctx.alloc_pd()?;
    let send_only: Granted<SendOnly> = ctx.require()?;
    pd.endpoint(send_only, Depth::new(1, 1))?.close()?;
    pd.endpoint(ctx.require::<Srd<{ ops::RDMA_WRITE }>>()?, Depth::new(1, 1))?.close()?;
    Ok(())
}

fn retries<P: Provider>(qp: QueuePair<P, Rtr, Srd>, token: Granted<SetRnrRetry>) -> Result<Endpoint<P>, Error> {
    Ok(qp.rts(RtsAttr::new().rnr_retry(token, RnrRetry::FOREVER).psn(7))?)
}

fn datagrams<P: Provider>(
    init: QueuePair<P, Init, Ud>,
    rtr: QueuePair<P, Rtr, Ud>,
    peer: &Peer<Mutual, Datagram>,
    mut slice: impl FnMut() -> Slice,
) -> Result<(), Error> {
    let any: AnyQueuePair<P, Ud> = init.error()?.into();
    let mut qp = rtr.rts(RtsAttr::new().psn(7))?;
    qp.post(peer.send(slice()), Token(0))?;
    qp.post(peer.send([slice(), slice()]).imm(1), Token(0))?;
    qp.post(peer.send_inline(b"hello").imm(1), Token(0))?;
    qp.post_recv([slice(), slice()], Token(0))?;
    drop(any);
    Ok(qp.close()?)
}

fn closed(region: Region<Vec<u8>>, slice: Slice) -> Result<Vec<u8>, Error> {
    let (head, tail) = slice.split_at(1)?;
    Ok(region.close(head.unsplit(tail)?)?)
}

fn main() {}
