//! Parses names of Lambda functions, and patterns for many. Calls nothing.

use super::problem::Problem;
use super::section::Given;

/// The longest name or qualifier that is taken. Lambda's own limits are 64 for a name and 128 for
/// a qualifier; its service has the last word.
const LONGEST: usize = 140;

/// The version that code is uploaded to.
const LATEST: &str = "$LATEST";

/// A function as the settings name it, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionName<'a> {
    /// `aws`, `aws-cn` or `aws-us-gov`, from an ARN.
    pub partition: Option<&'a str>,
    /// From an ARN.
    pub region: Option<&'a str>,
    /// Twelve digits, from an ARN or a part of one.
    pub account: Option<&'a str>,
    /// The function's bare name.
    pub name: &'a str,
    /// An alias or a version.
    pub qualifier: Option<&'a str>,
}

impl<'a> FunctionName<'a> {
    /// Takes apart `NAME`, `ACCOUNT:function:NAME` and `arn:aws:lambda:REGION:ACCOUNT:function:NAME`,
    /// each with or without a `:QUALIFIER`; `None` for anything else.
    pub fn parse(text: &'a str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let (partition, region, account, rest) = match parts.as_slice() {
            [
                "arn",
                partition,
                "lambda",
                region,
                account,
                "function",
                rest @ ..,
            ] => (Some(*partition), Some(*region), Some(*account), rest),
            [account, "function", rest @ ..] if !rest.is_empty() => {
                (None, None, Some(*account), rest)
            }
            rest => (None, None, None, rest),
        };
        let (name, qualifier) = match rest {
            [name] => (*name, None),
            [name, qualifier] => (*name, Some(*qualifier)),
            _ => return None,
        };
        let small = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let legal = is_word(name)
            && qualifier.is_none_or(|qualifier| qualifier == LATEST || is_word(qualifier))
            && partition.is_none_or(|text| text.starts_with("aws") && text.chars().all(small))
            && region.is_none_or(|text| !text.is_empty() && text.chars().all(small))
            && account.is_none_or(is_account);
        legal.then_some(Self {
            partition,
            region,
            account,
            name,
            qualifier,
        })
    }
}

fn is_word(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    (1..=LONGEST).contains(&text.len()) && text.chars().all(legal)
}

/// Whether the text is the number of an account of AWS.
fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A function, as it is written.
pub fn read(given: &Given) -> Result<String, Problem> {
    let text = given.text.trim();
    match FunctionName::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            let found = format!("`{text}` does not name a Lambda function");
            let wanted = "NAME, NAME:ALIAS, ACCOUNT:function:NAME or \
                          arn:aws:lambda:REGION:ACCOUNT:function:NAME";
            Err(Problem::new(&given.at, found, wanted))
        }
    }
}

/// A pattern of functions, as it is written; `*` stands for any characters.
pub fn pattern(given: &Given) -> Result<String, Problem> {
    let text = given.text.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_:*$".contains(c);
    let of_lambda = match text.strip_prefix("arn:").map(|rest| rest.split(':').nth(1)) {
        None => true,
        Some(service) => service.is_some_and(|service| service == "lambda" || service == "*"),
    };
    match (1..=256).contains(&text.len()) && text.chars().all(legal) && of_lambda {
        true => Ok(text.to_owned()),
        false => {
            let found = format!("`{text}` is not a pattern of Lambda functions");
            let wanted = "a name, NAME:ALIAS or ARN, in which `*` matches any characters";
            Err(Problem::new(&given.at, found, wanted).hint("written like img-*"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_function_name_is_parsed() {
        let plain = FunctionName {
            partition: None,
            region: None,
            account: None,
            name: "my-function",
            qualifier: None,
        };
        let partial = FunctionName {
            account: Some("123456789012"),
            ..plain
        };
        let whole = FunctionName {
            partition: Some("aws-cn"),
            region: Some("cn-north-1"),
            ..partial
        };
        let live = Some("live");
        for (text, wanted) in [
            ("my-function", plain),
            ("123456789012:function:my-function", partial),
            (
                "arn:aws-cn:lambda:cn-north-1:123456789012:function:my-function",
                whole,
            ),
        ] {
            assert_eq!(FunctionName::parse(text), Some(wanted), "{text}");
            let qualified = FunctionName {
                qualifier: live,
                ..wanted
            };
            let text = format!("{text}:live");
            assert_eq!(FunctionName::parse(&text), Some(qualified), "{text}");
        }
        let latest = FunctionName::parse("f:$LATEST").and_then(|function| function.qualifier);
        assert_eq!(latest, Some("$LATEST"));
        assert!(FunctionName::parse("my:function").is_some());
    }

    #[test]
    fn invalid_function_name_is_refused() {
        for text in [
            "",
            "a b",
            "f:",
            ":f",
            "f:a:b",
            "a/b",
            "f.x",
            "f:$OLDEST",
            "12345:function:f",
            "arn:aws:sqs:eu-west-1:123456789012:q",
            "arn:aws:lambda:eu-west-1:12:function:f",
            "arn:aws:lambda::123456789012:function:f",
            "arn:elsewhere:lambda:eu-west-1:123456789012:function:f",
            "arn:aws:lambda:eu-west-1:123456789012:layer:f",
        ] {
            let problem = read(&Given::new("--function", text)).expect_err(text);
            assert!(problem.to_string().contains("wanted NAME"), "{problem}");
        }
        assert!(read(&Given::new("--function", "f".repeat(141))).is_err());
    }

    #[test]
    fn function_patterns_are_names_with_wildcards() {
        for good in [
            "*",
            "img-*",
            "f:live",
            "*:prod",
            "arn:aws:lambda:*:*:function:a*",
        ] {
            let read = pattern(&Given::new("--allow-lambda", good));
            assert_eq!(read, Ok(good.to_owned()));
        }
        for bad in [
            "",
            "a b",
            "img?",
            "arn:aws:sqs:eu-west-1:1:q",
            "a/*",
            "arn:",
        ] {
            assert!(
                pattern(&Given::new("--allow-lambda", bad)).is_err(),
                "{bad}"
            );
        }
    }
}
