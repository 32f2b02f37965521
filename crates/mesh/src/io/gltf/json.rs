//! The JSON part. Lists keep their elements as text, which is parsed when it is needed, so that
//! memory stays in proportion to the file.

use std::borrow::Cow;
use std::collections::BTreeMap;

use glam::{DMat4, DQuat, DVec3};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::io::error::{FileProblem, quote};

type List<'a> = Vec<&'a RawValue>;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
pub(super) struct Root<'a> {
    pub(super) buffers: List<'a>,
    pub(super) buffer_views: List<'a>,
    pub(super) accessors: List<'a>,
    pub(super) meshes: List<'a>,
    pub(super) nodes: List<'a>,
    pub(super) scenes: List<'a>,
    pub(super) scene: Option<usize>,
    extensions_required: List<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Buffer<'a> {
    #[serde(borrow)]
    pub(super) uri: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BufferView {
    pub(super) buffer: usize,
    #[serde(default)]
    pub(super) byte_offset: usize,
    pub(super) byte_length: usize,
    #[serde(default)]
    pub(super) byte_stride: usize,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Accessor<'a> {
    pub(super) buffer_view: Option<usize>,
    #[serde(default)]
    pub(super) byte_offset: usize,
    pub(super) component_type: u32,
    #[serde(default)]
    pub(super) normalized: bool,
    pub(super) count: usize,
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    pub(super) sparse: Option<Sparse>,
    #[serde(borrow)]
    pub(super) name: Option<Cow<'a, str>>,
}

/// Elements of an accessor that differ from those of its buffer view, or from zero.
#[derive(Deserialize)]
pub(super) struct Sparse {
    pub(super) count: usize,
    pub(super) indices: SparsePart,
    pub(super) values: SparsePart,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SparsePart {
    pub(super) buffer_view: usize,
    #[serde(default)]
    pub(super) byte_offset: usize,
    /// Type of the indices.
    #[serde(default)]
    pub(super) component_type: u32,
}

#[derive(Deserialize)]
pub(super) struct Scene {
    #[serde(default)]
    pub(super) nodes: Vec<u32>,
}

#[derive(Deserialize)]
pub(super) struct Mesh<'a> {
    #[serde(borrow)]
    pub(super) primitives: List<'a>,
}

#[derive(Deserialize)]
pub(super) struct Primitive<'a> {
    #[serde(borrow)]
    pub(super) attributes: BTreeMap<Cow<'a, str>, usize>,
    pub(super) indices: Option<usize>,
    #[serde(default = "triangles")]
    pub(super) mode: u32,
}

fn triangles() -> u32 {
    4
}

#[derive(Deserialize)]
pub(super) struct Node {
    pub(super) mesh: Option<usize>,
    #[serde(default)]
    pub(super) children: Vec<u32>,
    matrix: Option<[f64; 16]>,
    translation: Option<[f64; 3]>,
    rotation: Option<[f64; 4]>,
    scale: Option<[f64; 3]>,
}

impl Node {
    /// Transform to the parent; `None` for the identity.
    pub(super) fn transform(&self) -> Option<DMat4> {
        if let Some(matrix) = &self.matrix {
            return Some(DMat4::from_cols_array(matrix));
        }
        if self.translation.is_none() && self.rotation.is_none() && self.scale.is_none() {
            return None;
        }
        let vector = |value: Option<[f64; 3]>, default| value.map_or(default, DVec3::from);
        Some(DMat4::from_scale_rotation_translation(
            vector(self.scale, DVec3::ONE),
            self.rotation.map_or(DQuat::IDENTITY, DQuat::from_array),
            vector(self.translation, DVec3::ZERO),
        ))
    }
}

fn bad_json(error: &serde_json::Error) -> FileProblem {
    FileProblem::BadDocument { why: format!("bad glTF JSON: {}", quote(error.to_string().as_bytes())) }
}

impl<'a> Root<'a> {
    pub(super) fn parse(json: &'a [u8]) -> Result<Self, FileProblem> {
        // Earlier versions have other types in place of the lists.
        let document: Versioned = serde_json::from_slice(json).map_err(|error| bad_json(&error))?;
        let version = document.asset.and_then(|asset| asset.version);
        if let Some(version) = version.filter(|version| !version.starts_with("2.")) {
            return Err(FileProblem::unsupported_gltf(&quote(version.as_bytes())));
        }
        let root: Self = serde_json::from_slice(json).map_err(|error| bad_json(&error))?;
        for extension in &root.extensions_required {
            let name = extension.get();
            if name.contains("draco") || name.contains("meshopt") {
                return Err(FileProblem::unsupported(format!("the glTF compression {}", quote(name.as_bytes()))));
            }
        }
        Ok(root)
    }
}

/// The version of a document.
#[derive(Deserialize)]
struct Versioned<'a> {
    #[serde(borrow)]
    asset: Option<Asset<'a>>,
}

#[derive(Deserialize)]
struct Asset<'a> {
    #[serde(borrow)]
    version: Option<Cow<'a, str>>,
}

/// Parses element `index` of a list.
pub(super) fn element<'a, T: Deserialize<'a>>(list: &List<'a>, index: usize, what: &str) -> Result<T, FileProblem> {
    let raw =
        list.get(index).ok_or_else(|| FileProblem::BadDocument { why: format!("{what} {index} does not exist") })?;
    parse(raw)
}

/// Parses a part of the document.
pub(super) fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, FileProblem> {
    serde_json::from_str(raw.get()).map_err(|error| bad_json(&error))
}
