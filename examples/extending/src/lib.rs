//! Extensions of gemcnn from outside its crates, through public API only: a nonlinearity, a layer, an
//! operator with a CUDA version, an input feature, a model and a kind of geometry. `docs/extending.md` walks through them.

pub mod angle_defect;
pub mod attention;
pub mod branches;
pub mod cotangents;
pub mod softsign;
pub mod tanh_norm;

/// Makes the feature and the models available to configurations: one line each.
pub fn register() {
    gemcnn_tasks::features::register::<angle_defect::AngleDefect>();
    gemcnn_tasks::models::register::<branches::Branches>();
    gemcnn_tasks::models::register::<cotangents::CotangentModel>();
}
