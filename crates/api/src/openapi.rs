//! The OpenAPI document: schemas from the wire types, paths from one table.

use std::collections::BTreeMap;

use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, OpenApiBuilder, Paths, Ref, RefOr, Required, ResponseBuilder,
    Schema,
};
use utoipa::{OpenApi, PartialSchema};

use crate::metrics::PROMETHEUS_TEXT;
use crate::v1::{self, Code, PROBLEM_JSON};

#[derive(OpenApi)]
#[openapi(components(schemas(
    v1::ByteSize,
    v1::Code,
    v1::Device,
    v1::DeviceCounts,
    v1::DeviceList,
    v1::DeviceRequest,
    v1::DeviceState,
    v1::DeviceStats,
    v1::FailedRemoval,
    v1::Failure,
    v1::Finding,
    v1::Kernel,
    v1::Limit,
    v1::Problem,
    v1::Removal,
    v1::RemovalReport,
    v1::Shard,
    v1::Status,
    v1::StepInProgress,
    v1::StopProgress,
    v1::TeardownOrder,
    v1::Usage,
)))]
struct Schemas;

/// What a successful answer carries.
enum Answer {
    Json(&'static str),
    Text(&'static str),
    Document,
}

struct Route {
    method: HttpMethod,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    answers: &'static [(u16, &'static str)],
    answer: Answer,
    problems: &'static [Code],
}

const DEVICE: &str = "/v1/devices/{name}";
const STRAY: &str = "/v1/strays/{id}";

/// What any request can be answered with.
const ANYWHERE: [Code; 7] = [
    Code::MalformedRequest,
    Code::PeerNotAllowed,
    Code::RequestTimeout,
    Code::UriTooLong,
    Code::HeadTooLarge,
    Code::Internal,
    Code::LimitReached,
];

const ROUTES: [Route; 9] = [
    Route {
        method: HttpMethod::Put,
        path: DEVICE,
        id: "create_device",
        summary: "Create a device, or find that the same request was fulfilled before",
        answers: &[
            (200, "The device existed, made from the same request"),
            (201, "The device is live"),
        ],
        answer: Answer::Json("Device"),
        problems: &[
            Code::InvalidJson,
            Code::InvalidField,
            Code::InvalidName,
            Code::UnknownSpec,
            Code::InvalidSpec,
            Code::InvalidSize,
            Code::PermissionDenied,
            Code::NameTaken,
            Code::Busy,
            Code::SourceInUse,
            Code::Cancelled,
            Code::BodyTooLarge,
            Code::UnsupportedMediaType,
            Code::SourceNotFound,
            Code::SourceDenied,
            Code::SourceInvalid,
            Code::CreateFailed,
            Code::KernelRefused,
            Code::IoFailed,
            Code::FeatureMissing,
            Code::ShuttingDown,
            Code::NoSpace,
        ],
    },
    Route {
        method: HttpMethod::Get,
        path: DEVICE,
        id: "inspect_device",
        summary: "One device",
        answers: &[(200, "The device")],
        answer: Answer::Json("Device"),
        problems: &[Code::InvalidName, Code::NotFound],
    },
    Route {
        method: HttpMethod::Delete,
        path: DEVICE,
        id: "remove_device",
        summary: "Stop and remove a device; answered when it is gone",
        answers: &[(200, "The device is gone")],
        answer: Answer::Json("Removal"),
        problems: &[
            Code::InvalidName,
            Code::NotFound,
            Code::Busy,
            Code::StopFailed,
            Code::KernelRefused,
            Code::IoFailed,
            Code::NoSpace,
        ],
    },
    Route {
        method: HttpMethod::Delete,
        path: STRAY,
        id: "remove_stray",
        summary: "Remove a ublk device of another installation that no living process serves; answered when it is gone",
        answers: &[(200, "The device is gone")],
        answer: Answer::Json("Removal"),
        problems: &[
            Code::InvalidField,
            Code::NotFound,
            Code::Busy,
            Code::StopFailed,
            Code::KernelRefused,
            Code::ShuttingDown,
        ],
    },
    Route {
        method: HttpMethod::Get,
        path: "/v1/devices",
        id: "list_devices",
        summary: "Every device, sorted by name",
        answers: &[(200, "The devices")],
        answer: Answer::Json("DeviceList"),
        problems: &[],
    },
    Route {
        method: HttpMethod::Delete,
        path: "/v1/devices",
        id: "remove_all_devices",
        summary: "Stop and remove every device; failures are part of the report",
        answers: &[(200, "What was removed and what failed")],
        answer: Answer::Json("RemovalReport"),
        problems: &[],
    },
    Route {
        method: HttpMethod::Get,
        path: "/v1/status",
        id: "status",
        summary: "The daemon, the kernel, limits and their use, progress of a shutdown",
        answers: &[(200, "The status")],
        answer: Answer::Json("Status"),
        problems: &[],
    },
    Route {
        method: HttpMethod::Get,
        path: "/metrics",
        id: "metrics",
        summary: "Metrics as Prometheus text",
        answers: &[(200, "The metrics")],
        answer: Answer::Text(PROMETHEUS_TEXT),
        problems: &[],
    },
    Route {
        method: HttpMethod::Get,
        path: "/openapi.json",
        id: "openapi",
        summary: "This document",
        answers: &[(200, "The document")],
        answer: Answer::Document,
        problems: &[],
    },
];

/// The whole document, for this version of the program.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    let paths = ROUTES.iter().fold(Paths::new(), |mut paths, route| {
        paths.add_path_operation(route.path, vec![route.method.clone()], operation(route));
        paths
    });
    let info = InfoBuilder::new()
        .title("Blockyard")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Block devices by name, over HTTP on a unix socket."))
        .build();
    OpenApiBuilder::new()
        .info(info)
        .paths(paths)
        .components(Schemas::openapi().components)
        .build()
}

fn operation(route: &Route) -> OperationBuilder {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(route.id))
        .summary(Some(route.summary));
    if route.path == DEVICE {
        let description =
            "1 to 63 letters, digits, '.', '_' and '-'; the first is a letter or a digit";
        operation = operation.parameter(in_path("name", description, String::schema()));
    }
    if route.path == STRAY {
        let description =
            "The kernel's number of the device, as the findings of /v1/status name it";
        operation = operation.parameter(in_path("id", description, u32::schema()));
    }
    if route.method == HttpMethod::Put {
        operation = operation.request_body(Some(
            RequestBodyBuilder::new()
                .required(Some(Required::True))
                .content("application/json", reference("DeviceRequest"))
                .build(),
        ));
    }
    for (status, description) in route.answers {
        let response = ResponseBuilder::new().description(*description);
        let response = match route.answer {
            Answer::Json(schema) => response.content("application/json", reference(schema)),
            Answer::Text(media_type) => response.content(
                media_type,
                ContentBuilder::new().schema(Some(String::schema())).build(),
            ),
            Answer::Document => response.content("application/json", ContentBuilder::new().build()),
        };
        operation = operation.response(status.to_string(), response.build());
    }
    // One answer for each status; its description names the codes, since a status can stand for several.
    let mut by_status: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
    for code in route.problems.iter().chain(&ANYWHERE) {
        by_status
            .entry(code.status())
            .or_default()
            .push(code.as_str());
    }
    for (status, codes) in by_status {
        let description = format!("A problem with one of the codes: {}", codes.join(", "));
        operation = operation.response(status.to_string(), problem(&description));
    }
    operation.response("default", problem("A problem of a newer release"))
}

/// A parameter that is a part of the path.
fn in_path(name: &str, description: &str, schema: RefOr<Schema>) -> ParameterBuilder {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(description))
        .schema(Some(schema))
}

fn reference(schema: &str) -> utoipa::openapi::content::Content {
    ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(schema)))
        .build()
}

fn problem(description: &str) -> utoipa::openapi::Response {
    ResponseBuilder::new()
        .description(description)
        .content(PROBLEM_JSON, reference("Problem"))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `$ref` of the document.
    fn references(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                for (key, value) in map {
                    match value.as_str() {
                        Some(target) if key == "$ref" => found.push(target.to_owned()),
                        _ => references(value, found),
                    }
                }
            }
            serde_json::Value::Array(values) => {
                values.iter().for_each(|value| references(value, found));
            }
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let json = serde_json::to_value(document()).unwrap();
        let mut found = Vec::new();
        references(&json, &mut found);
        assert!(found.len() > 20);
        for target in found {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(json.pointer(pointer).is_some(), "{target}");
        }
    }

    #[test]
    fn every_field_says_what_it_is() {
        let json = serde_json::to_value(document()).unwrap();
        let schemas = json
            .pointer("/components/schemas")
            .unwrap()
            .as_object()
            .unwrap();
        for (name, schema) in schemas {
            let Some(properties) = schema.get("properties").and_then(|p| p.as_object()) else {
                continue;
            };
            for (field, property) in properties {
                assert!(
                    property.to_string().contains("\"description\""),
                    "{name}.{field}"
                );
            }
        }
        assert_eq!(
            json.pointer("/components/schemas/DeviceRequest/additionalProperties"),
            Some(&false.into())
        );
    }

    #[test]
    fn every_code_that_the_server_sends_is_named_at_a_route() {
        let named: Vec<Code> = ROUTES
            .iter()
            .flat_map(|route| route.problems.iter().copied())
            .chain(ANYWHERE)
            .collect();
        let json = serde_json::to_value(document()).unwrap().to_string();
        for code in Code::ALL {
            let is_of_a_client = code.meaning().contains("not sent by the server");
            // No route has these: the path or the method names none.
            let is_of_no_route = [Code::RouteNotFound, Code::MethodNotAllowed].contains(code);
            // A daemon that meets these does not start.
            let is_of_the_start = [Code::UblkMissing, Code::KernelTooOld].contains(code);
            // A call that takes too long ends at the client.
            let is_of_the_call = *code == Code::DeadlineExceeded;
            let is_named = named.contains(code);
            assert_eq!(
                is_named,
                !(is_of_a_client || is_of_no_route || is_of_the_start || is_of_the_call),
                "{code:?}"
            );
            assert!(!is_named || json.contains(code.as_str()));
        }
        let create = json.split("\"create_device\"").nth(1).unwrap();
        assert!(create.contains("invalid_json, invalid_field, invalid_name"));
    }

    #[test]
    fn every_route_has_its_operation() {
        let json = serde_json::to_value(document()).unwrap();
        let paths = json.get("paths").unwrap().as_object().unwrap();
        let operations: usize = paths
            .values()
            .map(|item| {
                ["get", "put", "delete"]
                    .iter()
                    .filter(|m| item.get(**m).is_some())
                    .count()
            })
            .sum();
        assert_eq!(operations, ROUTES.len());
    }
}
