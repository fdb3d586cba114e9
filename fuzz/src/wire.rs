//! Bytes from peers.

use std::fmt::{Debug, Display};

use efa_core::Gid;
use efa_core::wire::{
    EndpointBytes, EndpointInfo, Grant, GrantFrame, Hello, HelloFrame, LibfabricAddress, ParseError, Ready, ReadyFrame,
    Window, WindowFrame,
};

/// Addresses in the forms of others, as bytes and as text.
pub fn endpoint(data: &[u8]) {
    if let Some(bytes) = accepted(EndpointBytes::parse(data)) {
        assert_eq!(bytes.as_bytes(), data);
        match bytes.resolve() {
            Ok(info) => {
                assert_eq!(EndpointInfo::parse(data), Ok(info));
                assert_eq!(info.to_bytes(), bytes);
            }
            Err(error) => assert_eq!(EndpointInfo::parse(data), Err(error)),
        }
    }
    if let Some(address) = accepted(LibfabricAddress::parse(data)) {
        let bytes = address.to_bytes();
        // Padding and libfabric's pointer are written as zeros, whatever came.
        assert_eq!((&bytes.as_bytes()[..18], &bytes.as_bytes()[20..24]), (&data[..18], &data[20..24]));
        assert_eq!(LibfabricAddress::parse(bytes.as_bytes()), Ok(address));
        assert_eq!(address.to_string().parse(), Ok(address));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        if let Some(address) = accepted(text.parse::<LibfabricAddress>()) {
            assert_eq!(address.to_string().parse(), Ok(address));
            assert_eq!(LibfabricAddress::parse(address.to_bytes().as_bytes()), Ok(address));
        }
        if let Some(gid) = accepted(text.parse::<Gid>()) {
            assert_eq!(gid.to_string().parse(), Ok(gid));
            assert_eq!(Gid::from_parts(gid.subnet_prefix(), gid.interface_id()), gid);
        }
    }
}

/// This crate's frames: as the bytes are, and behind a header that is right.
pub fn frames(data: &[u8]) {
    frame(data, |bytes| Hello::parse(bytes).map(|hello| (hello, hello.to_frame())), HelloFrame::as_bytes);
    frame(data, |bytes| Ready::parse(bytes).map(|ready| (ready, ready.to_frame())), ReadyFrame::as_bytes);
    frame(data, |bytes| Grant::parse(bytes).map(|grant| (grant, grant.to_frame())), GrantFrame::as_bytes);
    // A window has a grant in it, with a header of its own.
    let head = *b"EFAW\0\x01\0\x48";
    let window: Vec<u8> = head.into_iter().chain(data.iter().copied()).take(WindowFrame::LEN).collect();
    for bytes in [data, &window] {
        frame(bytes, |bytes| Window::parse(bytes).map(|window| (window, window.to_frame())), WindowFrame::as_bytes);
    }

    for (magic, length) in [(b"EFAH", HelloFrame::LEN), (b"EFAR", ReadyFrame::LEN), (b"EFAG", GrantFrame::LEN)] {
        let header = magic.iter().copied().chain([0, 1, 0, length as u8]);
        let bytes: Vec<u8> = header.chain(data.iter().copied()).take(length).collect();
        let right = bytes.len() == length;
        let errors = [Hello::parse(&bytes).err(), Ready::parse(&bytes).err(), Grant::parse(&bytes).err()];
        for error in errors.into_iter().flatten() {
            // Two parsers see another's magic; for the third the header is right, so only the body can be wrong.
            assert!(!matches!(error, ParseError::Version { .. } | ParseError::Length { .. }), "{error:?}");
            assert!(!right || !matches!(error, ParseError::Missing { .. } | ParseError::Trailing { .. }), "{error:?}");
        }
        frame(&bytes, |bytes| Hello::parse(bytes).map(|hello| (hello, hello.to_frame())), HelloFrame::as_bytes);
        frame(&bytes, |bytes| Ready::parse(bytes).map(|ready| (ready, ready.to_frame())), ReadyFrame::as_bytes);
        frame(&bytes, |bytes| Grant::parse(bytes).map(|grant| (grant, grant.to_frame())), GrantFrame::as_bytes);
    }
}

/// What is accepted is written as it came, and parsed again to the same.
fn frame<T: PartialEq + Debug, F>(
    data: &[u8],
    parse: impl Fn(&[u8]) -> Result<(T, F), ParseError>,
    as_bytes: impl Fn(&F) -> &[u8],
) {
    if let Some((value, written)) = accepted(parse(data)) {
        assert_eq!(as_bytes(&written), data);
        assert_eq!(parse(as_bytes(&written)).map(|(again, _)| again), Ok(value));
    }
}

/// The value; an error must be able to say what it is.
fn accepted<T, E: Display>(result: Result<T, E>) -> Option<T> {
    result.inspect_err(|error| assert!(!error.to_string().is_empty())).ok()
}
