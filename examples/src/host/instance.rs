//! What EC2 says of an instance: by DMI without a network, and by the metadata service where it answered.

use std::collections::BTreeSet;

use super::lists::{self, InstanceType};
use super::view::View;

/// An instance, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct Instance {
    /// Whether the machine says that it is one of EC2's.
    pub ec2: bool,
    /// Its type: `p5.48xlarge`.
    pub kind: Option<String>,
    /// What the list has for its type.
    pub row: Option<&'static InstanceType>,
    /// Its identifier.
    pub id: Option<String>,
    /// Its region.
    pub region: Option<String>,
    /// The identifier of its availability zone, which is the same in all accounts.
    pub zone: Option<String>,
    /// Its placement group.
    pub group: Option<String>,
    /// The dedicated host that it runs on.
    pub dedicated: Option<String>,
    /// The virtual networks of its interfaces.
    pub networks: BTreeSet<String>,
    /// Their subnets.
    pub subnets: BTreeSet<String>,
    /// Their security groups.
    pub security: BTreeSet<String>,
}

impl Instance {
    /// Reads it.
    pub fn of(view: &View) -> Self {
        let dmi =
            |file: &str| view.text(&format!("/sys/devices/virtual/dmi/id/{file}")).filter(|text| !text.is_empty());
        let ec2 = dmi("sys_vendor").is_some_and(|vendor| vendor.contains("Amazon EC2"));
        let said = |key: &str| {
            view.metadata.answer().and_then(|metadata| metadata.get(key).cloned()).filter(|text| !text.is_empty())
        };
        let of_each = |key: &str| {
            let metadata = view.metadata.answer().into_iter().flatten();
            let values = metadata.filter(|(path, _)| path.starts_with("network/") && path.ends_with(key));
            values.flat_map(|(_, value)| value.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
        };
        let kind = said("instance-type").or_else(|| dmi("product_name").filter(|_| ec2));
        Self {
            ec2,
            row: kind.as_deref().and_then(lists::instance),
            kind,
            id: said("instance-id").or_else(|| dmi("board_asset_tag").filter(|_| ec2)),
            region: said("placement/region"),
            zone: said("placement/availability-zone-id"),
            group: said("placement/group-name"),
            dedicated: said("placement/host-id"),
            networks: of_each("/vpc-id"),
            subnets: of_each("/subnet-id"),
            security: of_each("/security-group-ids"),
        }
    }

    /// The instance's identifier for a command line, or what to put there.
    pub(crate) fn id_or_blank(&self) -> &str {
        self.id.as_deref().unwrap_or("INSTANCE_ID")
    }

    /// `--region REGION`, where it is known.
    pub(crate) fn region_option(&self) -> String {
        self.region.as_ref().map(|region| format!(" --region {region}")).unwrap_or_default()
    }
}
