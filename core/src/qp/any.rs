//! A queue pair in whichever state: for a field that lives through bring-up.

#![forbid(unsafe_code)]

use core::fmt;

use super::{Err, Init, Inner, QpKind, QpState, QueuePair, Reset, Rtr, Rts, Sqd, Sqe, State};
use crate::Provider;

macro_rules! any {
    ($($state:ident: $into:ident),*) => {
        /// A queue pair in whichever state.
        pub enum AnyQueuePair<P: Provider, K: QpKind> {
            $(
                #[doc = concat!("In ", stringify!($state), ".")]
                $state(QueuePair<P, $state, K>),
            )*
        }

        impl<P: Provider, K: QpKind> AnyQueuePair<P, K> {
            /// Its state.
            pub fn state(&self) -> QpState {
                match self {
                    $(Self::$state(_) => $state::STATE,)*
                }
            }

            $(
                #[doc = concat!("The queue pair, if it is in ", stringify!($state), ".")]
                ///
                /// # Errors
                /// `self`, if it is in another state.
                pub fn $into(self) -> Result<QueuePair<P, $state, K>, Self> {
                    match self {
                        Self::$state(qp) => Ok(qp),
                        #[allow(unreachable_patterns)]
                        other => Result::Err(other),
                    }
                }
            )*
        }

        impl<P: Provider, K: QpKind> AnyQueuePair<P, K> {
            /// In the state that its device reports; as it was in one that this crate does not know.
            pub(super) fn of(inner: Inner<P>, state: QpState) -> Result<Self, Inner<P>> {
                match state {
                    $(QpState::$state => Ok(Self::$state(QueuePair::of(inner))),)*
                    QpState::Unknown(_) => Result::Err(inner),
                }
            }

            pub(super) fn inner(&self) -> &Inner<P> {
                match self {
                    $(Self::$state(qp) => &qp.inner,)*
                }
            }

            pub(super) fn inner_mut(&mut self) -> &mut Inner<P> {
                match self {
                    $(Self::$state(qp) => &mut qp.inner,)*
                }
            }

            pub(super) fn into_inner(self) -> Inner<P> {
                match self {
                    $(Self::$state(qp) => qp.inner,)*
                }
            }
        }

        impl<P: Provider, K: QpKind> fmt::Debug for AnyQueuePair<P, K> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$state(qp) => qp.fmt(f),)*
                }
            }
        }

        $(
            impl<P: Provider, K: QpKind> From<QueuePair<P, $state, K>> for AnyQueuePair<P, K> {
                fn from(qp: QueuePair<P, $state, K>) -> Self {
                    Self::$state(qp)
                }
            }
        )*
    };
}

any!(Reset: into_reset, Init: into_init, Rtr: into_rtr, Rts: into_rts, Sqd: into_sqd, Sqe: into_sqe, Err: into_err);
