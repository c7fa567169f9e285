//! Parses an SQS queue: a name, a URL or an ARN. Calls nothing.

/// A queue as the configuration writes it, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address<'a> {
    /// In the configured account and region.
    Name(&'a str),
    /// In the account and region that it names.
    Arn {
        region: &'a str,
        account: &'a str,
        name: &'a str,
    },
    /// As SQS itself names it.
    Url {
        url: &'a str,
        /// The region in the host's name, for hosts of AWS.
        region: Option<&'a str>,
        /// Scheme, host and port of a host that the SDK would not find by region.
        endpoint: Option<&'a str>,
    },
}

impl<'a> Address<'a> {
    /// Takes apart what `QueueName` has accepted; anything that is neither ARN nor URL is a name.
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
        let aws = host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
        // The SDK finds the public endpoints by region, but not those inside a VPC.
        let public = aws && !host.contains(".vpce.");
        let origin = &text[..text.len() - after.len() + authority.len()];
        Self::Url {
            url: text,
            region: region_of(host).filter(|_| aws),
            endpoint: (!public).then_some(origin),
        }
    }
}

/// `sqs.REGION.amazonaws.com`, `vpce-….sqs.REGION.vpce.amazonaws.com` or the old
/// `REGION.queue.amazonaws.com`.
fn region_of(host: &str) -> Option<&str> {
    let labels: Vec<&str> = host.split('.').collect();
    let service = labels.iter().position(|l| ["sqs", "sqs-fips"].contains(l));
    if let Some(at) = service {
        return labels.get(at + 1).copied();
    }
    match labels[..] {
        ["queue", "amazonaws", ..] => Some("us-east-1"),
        [region, "queue", ..] => Some(region),
        _ => None,
    }
}

/// The queue's name within a queue URL: its last segment.
pub(super) fn name_in_url(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url<'a>(
        url: &'a str,
        region: Option<&'a str>,
        endpoint: Option<&'a str>,
    ) -> (Address<'a>, Address<'a>) {
        let expected = Address::Url {
            url,
            region,
            endpoint,
        };
        (Address::of(url), expected)
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
    fn queue_url_yields_region_or_endpoint() {
        let cases = [
            url(
                "https://sqs.eu-west-1.amazonaws.com/1/q",
                Some("eu-west-1"),
                None,
            ),
            url(
                "https://eu-west-1.queue.amazonaws.com/1/q",
                Some("eu-west-1"),
                None,
            ),
            url("https://queue.amazonaws.com/1/q", Some("us-east-1"), None),
            url(
                "https://sqs.cn-north-1.amazonaws.com.cn/1/q",
                Some("cn-north-1"),
                None,
            ),
            url(
                "https://vpce-0a.sqs.eu-west-1.vpce.amazonaws.com/1/q",
                Some("eu-west-1"),
                Some("https://vpce-0a.sqs.eu-west-1.vpce.amazonaws.com"),
            ),
            url(
                "http://127.0.0.1:4566/0/q",
                None,
                Some("http://127.0.0.1:4566"),
            ),
            url("http://localhost/0/q", None, Some("http://localhost")),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
        assert_eq!(name_in_url("http://127.0.0.1:4566/0/q"), "q");
    }
}
