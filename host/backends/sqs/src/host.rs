//! The hosts of SQS at AWS: the region, the partition and the kind of endpoint that a host name
//! contains. Makes no calls.

/// A partition of AWS, as in the SDK's `partitions.json`.
struct Partition {
    id: &'static str,
    /// The prefix of its regions; empty for `aws`, which has all other regions.
    regions: &'static str,
    /// The suffix of its hosts.
    suffix: &'static str,
    /// The suffix of its dual-stack hosts.
    dual_stack_suffix: &'static str,
}

const fn partition(
    id: &'static str,
    regions: &'static str,
    suffix: &'static str,
    dual_stack_suffix: &'static str,
) -> Partition {
    Partition {
        id,
        regions,
        suffix,
        dual_stack_suffix,
    }
}

const AWS: Partition = partition("aws", "", "amazonaws.com", "api.aws");

const PARTITIONS: [Partition; 8] = [
    partition(
        "aws-cn",
        "cn-",
        "amazonaws.com.cn",
        "api.amazonwebservices.com.cn",
    ),
    partition("aws-us-gov", "us-gov-", "amazonaws.com", "api.aws"),
    partition(
        "aws-eusc",
        "eusc-",
        "amazonaws.eu",
        "api.amazonwebservices.eu",
    ),
    partition("aws-iso", "us-iso-", "c2s.ic.gov", "api.aws.ic.gov"),
    partition("aws-iso-b", "us-isob-", "sc2s.sgov.gov", "api.aws.scloud"),
    partition(
        "aws-iso-e",
        "eu-isoe-",
        "cloud.adc-e.uk",
        "api.cloud-aws.adc-e.uk",
    ),
    partition(
        "aws-iso-f",
        "us-isof-",
        "csp.hci.ic.gov",
        "api.aws.hci.ic.gov",
    ),
    AWS,
];

/// The region of `queue.amazonaws.com`, the oldest name of SQS.
const OLDEST_REGION: &str = "us-east-1";

/// A host of SQS at AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AwsHost {
    pub region: String,
    /// Whether the SDK derives this host from the region.
    pub is_standard: bool,
    /// Whether it is a FIPS endpoint.
    pub is_fips: bool,
}

impl AwsHost {
    /// Parses `sqs.REGION.SUFFIX`, `sqs-fips.REGION.SUFFIX`, inside a VPC
    /// `vpce-….sqs.REGION.vpce.SUFFIX`, and the old `REGION.queue.SUFFIX` and `queue.SUFFIX`.
    /// SUFFIX is that of any partition, also for dual stack. Returns `None` for any other host.
    pub(crate) fn of(host: &str) -> Option<Self> {
        let host = host.to_ascii_lowercase();
        let suffixes = PARTITIONS
            .iter()
            .flat_map(|it| [it.suffix, it.dual_stack_suffix]);
        let (labels, suffix) = suffixes
            .filter_map(|suffix| Some((host.strip_suffix(suffix)?.strip_suffix('.')?, suffix)))
            .next()?;
        let labels: Vec<&str> = labels.split('.').collect();
        let (region, is_fips) = match labels[..] {
            [.., "sqs", region, "vpce"] | [.., "sqs", region] => (region, false),
            [.., "sqs-fips", region, "vpce"] | [.., "sqs-fips", region] => (region, true),
            [region, "queue"] => (region, false),
            ["queue"] => (OLDEST_REGION, false),
            _ => return None,
        };
        let is_region = region
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if region.is_empty() || !is_region {
            return None;
        }
        let is_standard = labels == ["sqs", region] && suffix == partition_of_region(region).suffix;
        Some(Self {
            region: region.to_owned(),
            is_standard,
            is_fips,
        })
    }

    pub(crate) fn partition(&self) -> &'static str {
        partition_of_region(&self.region).id
    }
}

/// Returns the partition of a region. The last partition matches all regions that no other one
/// matches.
fn partition_of_region(region: &str) -> &'static Partition {
    let mut found = PARTITIONS.iter();
    found
        .find(|it| region.starts_with(it.regions))
        .unwrap_or(&AWS)
}

/// Returns the host name in a URL.
pub(crate) fn host_in(url: &str) -> Option<&str> {
    url.split_once("://")?.1.split(['/', ':']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Host, region, partition, and the kind of endpoint. The last row has a host that the SDK would not
    /// make of its region.
    const HOSTS: &str = "
        sqs.eu-west-1.amazonaws.com eu-west-1 aws standard
        SQS.EU-West-1.AmazonAWS.com eu-west-1 aws standard
        sqs.mx-central-9.amazonaws.com mx-central-9 aws standard
        sqs-fips.us-west-2.amazonaws.com us-west-2 aws fips
        sqs.eu-west-1.api.aws eu-west-1 aws other
        sqs-fips.us-west-2.api.aws us-west-2 aws fips
        queue.amazonaws.com us-east-1 aws other
        eu-west-1.queue.amazonaws.com eu-west-1 aws other
        vpce-0a-b.sqs.eu-west-1.vpce.amazonaws.com eu-west-1 aws other
        vpce-0a-b-eu-west-1a.sqs.eu-west-1.vpce.amazonaws.com eu-west-1 aws other
        vpce-0a-b.sqs-fips.us-east-1.vpce.amazonaws.com us-east-1 aws fips
        sqs.cn-north-1.amazonaws.com.cn cn-north-1 aws-cn standard
        sqs.cn-northwest-1.api.amazonwebservices.com.cn cn-northwest-1 aws-cn other
        cn-north-1.queue.amazonaws.com.cn cn-north-1 aws-cn other
        vpce-1.sqs.cn-north-1.vpce.amazonaws.com.cn cn-north-1 aws-cn other
        sqs.us-gov-west-1.amazonaws.com us-gov-west-1 aws-us-gov standard
        sqs.us-gov-east-1.api.aws us-gov-east-1 aws-us-gov other
        sqs.eusc-de-east-1.amazonaws.eu eusc-de-east-1 aws-eusc standard
        sqs.eusc-de-east-1.api.amazonwebservices.eu eusc-de-east-1 aws-eusc other
        sqs.us-iso-east-1.c2s.ic.gov us-iso-east-1 aws-iso standard
        sqs.us-iso-west-1.api.aws.ic.gov us-iso-west-1 aws-iso other
        sqs.us-isob-east-1.sc2s.sgov.gov us-isob-east-1 aws-iso-b standard
        sqs.us-isob-east-1.api.aws.scloud us-isob-east-1 aws-iso-b other
        sqs.eu-isoe-west-1.cloud.adc-e.uk eu-isoe-west-1 aws-iso-e standard
        sqs.eu-isoe-west-1.api.cloud-aws.adc-e.uk eu-isoe-west-1 aws-iso-e other
        sqs.us-isof-south-1.csp.hci.ic.gov us-isof-south-1 aws-iso-f standard
        sqs.us-isof-east-1.api.aws.hci.ic.gov us-isof-east-1 aws-iso-f other
        sqs.eu-west-1.amazonaws.eu eu-west-1 aws other
    ";

    #[test]
    fn every_form_of_a_host_states_its_region_partition_and_kind() {
        for row in HOSTS.lines().filter(|row| !row.trim().is_empty()) {
            let fields: Vec<&str> = row.split_whitespace().collect();
            let [host, region, partition, kind] = fields[..] else {
                panic!("{row}");
            };
            let found = AwsHost::of(host).expect(host);
            assert_eq!(
                (&*found.region, found.partition()),
                (region, partition),
                "{host}"
            );
            assert_eq!(found.is_standard, kind == "standard", "{host}");
            assert_eq!(found.is_fips, kind == "fips", "{host}");
        }
    }

    #[test]
    fn any_other_host_is_not_sqs_at_aws() {
        for host in [
            "localhost",
            "127.0.0.1",
            "sqs.eu-west-1.localhost.localstack.cloud",
            "amazonaws.com",
            "s3.eu-west-1.amazonaws.com",
            "sqs.eu-west-1.amazonaws.com.evil.example",
            "sqs.eu-west-1.myamazonaws.com",
            "sqs..amazonaws.com",
            "sqs.eu_west.amazonaws.com",
            "",
        ] {
            assert_eq!(AwsHost::of(host), None, "{host}");
        }
    }
}
