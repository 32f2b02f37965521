//! Extensions of gemcnn from outside its crates, through public API only: a nonlinearity, an operator with
//! a CUDA version, an input feature and a model. `docs/extending.md` walks through them.

pub mod angle_defect;
pub mod branches;
pub mod softsign;
pub mod tanh_norm;

/// Makes the feature and the model available to configurations: one line each.
pub fn register() {
    gemcnn_tasks::features::register::<angle_defect::AngleDefect>();
    gemcnn_tasks::models::register::<branches::Branches>();
}
