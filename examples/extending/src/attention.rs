//! A layer: attention over neighbours, composed of primitives.

use gemcnn_nn::layers::{EquivariantLinear, EquivariantLinearConfig};
use gemcnn_nn::{
    Builder, EdgeFrame, FeatureType, Grouping, LayerConfig, Levels, Module, NnError, Real, Reduce, Stage, Tape, Var,
};
use std::sync::Arc;

/// Attention over neighbours; the type of the features does not change.
#[derive(Debug)]
pub struct Attention {
    /// Heads, each with its own channels: their number divides every multiplicity.
    pub heads: usize,
}

impl<T: Real> LayerConfig<T> for Attention {
    fn word(&self) -> &'static str {
        "attention"
    }

    fn init(&self, name: &str, stage: &mut Stage, builder: &mut Builder<'_, T>) -> Result<Box<dyn Module<T>>, NnError> {
        // After pooling there is one row for each mesh, face or edge.
        if stage.pooled {
            return Err(NnError::setting("layer", "attention needs vertices").in_layer(name));
        }
        let kind = stage.kind.clone();
        stage.move_to(kind.clone(), Vec::new()); // type and moments of the output
        let map = EquivariantLinearConfig::new(kind.clone(), kind.clone());
        builder.within(name, |builder| {
            Ok(Box::new(AttentionLayer {
                query: map.init("query", builder)?,
                key: map.init("key", builder)?,
                value: map.init("value", builder)?,
                reduce: Arc::new(Reduce { heads: self.heads, ..Reduce::sum(kind, EdgeFrame::Vertex) }),
            }) as Box<dyn Module<T>>)
        })
    }
}

/// The layer of [`Attention`].
#[derive(Debug)]
pub struct AttentionLayer {
    query: EquivariantLinear,
    key: EquivariantLinear,
    value: EquivariantLinear,
    reduce: Arc<Reduce>,
}

impl<T: Real> Module<T> for AttentionLayer {
    fn input(&self) -> &FeatureType {
        &self.reduce.features
    }

    fn output(&self) -> &FeatureType {
        &self.reduce.features
    }

    fn forward<'a>(&self, tape: &mut Tape<'a, T>, levels: Levels<'a, T>, x: Var<T>) -> Result<Var<T>, NnError> {
        // In the frames of vertices, products of queries and keys are invariant and the sum is equivariant.
        let (graph, frame, heads) = (levels.graph()?, EdgeFrame::Vertex, self.reduce.heads);
        let query = self.query.forward(tape, levels, x.clone())?;
        let key = self.key.forward(tape, levels, x.clone())?;
        let value = self.value.forward(tape, levels, x)?;
        let query = tape.spread_edges(frame, graph, query)?; // of the vertex itself, at each of its edges
        let key = tape.gather_edges(frame, graph, key)?; // of the neighbour, transported to the vertex
        let value = tape.gather_edges(frame, graph, value)?;
        let scores = tape.irrep_dot(Grouping::Heads(heads), query, key)?; // one scalar per edge and head
        let width = self.reduce.features.dimension() as f64 / heads as f64;
        let scores = tape.scale(width.sqrt().recip(), scores)?;
        let weights = tape.edge_softmax(graph, scores)?;
        tape.reduce_edges_weighted(&self.reduce, graph, value, weights)
    }
}
