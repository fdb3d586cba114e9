//! The verbs' status, which says less than the device's.

#![forbid(unsafe_code)]

use crate::numbered::numbered;

numbered! {
    /// The verbs' status of a completion (`ibv_wc_status`).
    ///
    /// For an EFA device use [`CompletionStatus`](super::CompletionStatus), found in `vendor_err`: it says more.
    pub enum WcStatus: u32, "work completion status" {
        /// Done.
        Success = 0, "IBV_WC_SUCCESS";
        /// Longer than is taken locally.
        LocLenErr = 1, "IBV_WC_LOC_LEN_ERR";
        /// The local queue pair cannot do it.
        LocQpOpErr = 2, "IBV_WC_LOC_QP_OP_ERR";
        /// Not from EFA: a local end-to-end context failed.
        LocEecOpErr = 3, "IBV_WC_LOC_EEC_OP_ERR";
        /// Local memory lacks the registration or the access.
        LocProtErr = 4, "IBV_WC_LOC_PROT_ERR";
        /// The queue pair went to the error state first.
        WrFlushErr = 5, "IBV_WC_WR_FLUSH_ERR";
        /// Not from EFA: a memory window was not bound.
        MwBindErr = 6, "IBV_WC_MW_BIND_ERR";
        /// The responder answered something unexpected.
        BadRespErr = 7, "IBV_WC_BAD_RESP_ERR";
        /// Not from EFA: local access failed while receiving.
        LocAccessErr = 8, "IBV_WC_LOC_ACCESS_ERR";
        /// The responder found the request invalid.
        RemInvReqErr = 9, "IBV_WC_REM_INV_REQ_ERR";
        /// Remote memory lacks the registration or the access.
        RemAccessErr = 10, "IBV_WC_REM_ACCESS_ERR";
        /// The responder could not do it.
        RemOpErr = 11, "IBV_WC_REM_OP_ERR";
        /// Not from EFA: transport retries ran out.
        RetryExcErr = 12, "IBV_WC_RETRY_EXC_ERR";
        /// Retries for lack of a receive ran out.
        RnrRetryExcErr = 13, "IBV_WC_RNR_RETRY_EXC_ERR";
        /// Not from EFA: a reliable datagram domain was violated locally.
        LocRddViolErr = 14, "IBV_WC_LOC_RDD_VIOL_ERR";
        /// The responder found the destination invalid.
        RemInvRdReqErr = 15, "IBV_WC_REM_INV_RD_REQ_ERR";
        /// The responder aborted.
        RemAbortErr = 16, "IBV_WC_REM_ABORT_ERR";
        /// Not from EFA: an end-to-end context number was invalid.
        InvEecnErr = 17, "IBV_WC_INV_EECN_ERR";
        /// Not from EFA: an end-to-end context was in the wrong state.
        InvEecStateErr = 18, "IBV_WC_INV_EEC_STATE_ERR";
        /// Not from EFA: the device failed.
        FatalErr = 19, "IBV_WC_FATAL_ERR";
        /// The responder did not answer.
        RespTimeoutErr = 20, "IBV_WC_RESP_TIMEOUT_ERR";
        /// Something that has no number of its own.
        GeneralErr = 21, "IBV_WC_GENERAL_ERR";
        /// Not from EFA: tag matching failed.
        TmErr = 22, "IBV_WC_TM_ERR";
        /// Not from EFA: a tag matching rendezvous is unfinished.
        TmRndvIncomplete = 23, "IBV_WC_TM_RNDV_INCOMPLETE";
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn every_number_is_kept_whether_known_or_not() {
        assert!(WcStatus::ALL.iter().map(|status| status.number()).eq(0..=23));
        for number in (0..=300).chain([u32::MAX]) {
            assert_eq!(WcStatus::from_number(number).number(), number);
            assert_eq!(matches!(WcStatus::from_number(number), WcStatus::Unknown(_)), number > 23);
        }
    }

    #[test]
    fn a_status_is_printed_as_verbs_names_it_and_an_unknown_one_by_number() {
        assert_eq!(WcStatus::RemOpErr.to_string(), "IBV_WC_REM_OP_ERR");
        assert_eq!(WcStatus::Unknown(99).to_string(), "unknown work completion status 99");
    }
}
