//! Parses the address of an SQS queue: a name, a URL or an ARN. Makes no calls.

use crate::host::AwsHost;

/// The parsed address of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address<'a> {
    /// A queue in the configured account and region.
    Name(&'a str),
    /// A queue in the account and region of the ARN.
    Arn {
        region: &'a str,
        account: &'a str,
        name: &'a str,
    },
    /// A queue by its URL.
    Url {
        url: &'a str,
        /// The region in the host name, for hosts of AWS.
        region: Option<String>,
        /// The endpoint, if the SDK would not derive it from the region.
        endpoint: Option<OwnEndpoint<'a>>,
    },
}

/// The endpoint in a queue's URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct OwnEndpoint<'a> {
    /// The scheme, host and port.
    pub origin: &'a str,
    /// Whether it is a FIPS endpoint of AWS.
    pub is_fips: bool,
}

impl<'a> Address<'a> {
    /// Parses a text that `QueueName` accepted; a text that is neither an ARN nor a URL is a name.
    pub(super) fn of(text: &'a str) -> Self {
        if let Some(("arn", rest)) = text.split_once(':') {
            let parts: Vec<&str> = rest.split(':').collect();
            if let [_partition, "sqs", region, account, name] = parts[..] {
                return Self::Arn {
                    region,
                    account,
                    name,
                };
            }
        }
        let Some((_, after)) = text.split_once("://") else {
            return Self::Name(text);
        };
        let authority = after.split('/').next().unwrap_or_default();
        let host = authority.split(':').next().unwrap_or_default();
        let aws = AwsHost::of(host);
        let is_standard = aws.as_ref().is_some_and(|host| host.is_standard);
        let own = OwnEndpoint {
            origin: &text[..text.len() - after.len() + authority.len()],
            is_fips: aws.as_ref().is_some_and(|host| host.is_fips),
        };
        Self::Url {
            url: text,
            region: aws.map(|host| host.region),
            endpoint: (!is_standard).then_some(own),
        }
    }

    /// Returns the endpoint in the queue's URL, if the SDK would not derive it from the region.
    pub(super) fn own_endpoint(&self) -> Option<OwnEndpoint<'a>> {
        match self {
            Self::Url { endpoint, .. } => *endpoint,
            Self::Name(_) | Self::Arn { .. } => None,
        }
    }
}

/// Returns the name in a queue URL: its last segment.
pub(super) fn name_in_url(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    url.rsplit('/').next().unwrap_or(url)
}

/// Returns the URL, at another endpoint, of a queue that is given as a URL or an ARN. A name is
/// returned unchanged.
pub(super) fn at_endpoint(origin: &str, queue: &str) -> String {
    match Address::of(queue) {
        Address::Arn { account, name, .. } => format!("{origin}/{account}/{name}"),
        Address::Url { url, .. } => {
            let after = url.split_once("://").map_or(url, |(_, after)| after);
            let path = after.split_once('/').map_or("", |(_, path)| path);
            format!("{origin}/{path}")
        }
        Address::Name(name) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url<'a>(url: &'a str, region: Option<&str>, origin: Option<&'a str>) {
        let expected = Address::Url {
            url,
            region: region.map(str::to_owned),
            endpoint: origin.map(|origin| OwnEndpoint {
                origin,
                is_fips: origin.contains("fips"),
            }),
        };
        assert_eq!(Address::of(url), expected);
    }

    #[test]
    fn queue_names_and_arns_are_parsed() {
        assert_eq!(Address::of("orders.fifo"), Address::Name("orders.fifo"));
        assert_eq!(
            Address::of("arn:aws-cn:sqs:cn-north-1:123456789012:q"),
            Address::Arn {
                region: "cn-north-1",
                account: "123456789012",
                name: "q"
            }
        );
    }

    #[test]
    fn queue_url_is_called_in_its_region_at_its_endpoint() {
        url(
            "https://sqs.eu-west-1.amazonaws.com/1/q",
            Some("eu-west-1"),
            None,
        );
        url(
            "https://sqs.cn-north-1.amazonaws.com.cn/1/q",
            Some("cn-north-1"),
            None,
        );
        url(
            "https://sqs-fips.us-west-2.amazonaws.com/1/q",
            Some("us-west-2"),
            Some("https://sqs-fips.us-west-2.amazonaws.com"),
        );
        url(
            "https://sqs.eu-west-1.api.aws/1/q",
            Some("eu-west-1"),
            Some("https://sqs.eu-west-1.api.aws"),
        );
        url(
            "https://eu-west-1.queue.amazonaws.com/1/q",
            Some("eu-west-1"),
            Some("https://eu-west-1.queue.amazonaws.com"),
        );
        url(
            "https://queue.amazonaws.com/1/q",
            Some("us-east-1"),
            Some("https://queue.amazonaws.com"),
        );
        url(
            "https://vpce-0a.sqs.eu-west-1.vpce.amazonaws.com/1/q",
            Some("eu-west-1"),
            Some("https://vpce-0a.sqs.eu-west-1.vpce.amazonaws.com"),
        );
        url(
            "http://127.0.0.1:4566/0/q",
            None,
            Some("http://127.0.0.1:4566"),
        );
        url("http://localhost/0/q", None, Some("http://localhost"));
    }

    #[test]
    fn name_is_the_last_segment_of_a_url() {
        assert_eq!(name_in_url("http://127.0.0.1:4566/0/q"), "q");
        assert_eq!(name_in_url("http://127.0.0.1:4566/0/q/"), "q");
    }

    #[test]
    fn related_queue_is_reached_at_the_same_endpoint() {
        let origin = "https://sqs-fips.us-west-2.amazonaws.com";
        let wanted = "https://sqs-fips.us-west-2.amazonaws.com/123456789012/q";
        for queue in [
            "https://sqs.us-west-2.amazonaws.com/123456789012/q",
            "arn:aws:sqs:us-west-2:123456789012:q",
        ] {
            assert_eq!(at_endpoint(origin, queue), wanted, "{queue}");
        }
        assert_eq!(at_endpoint(origin, "q"), "q");
    }
}
