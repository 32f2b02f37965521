//! Viewing directions, and the projection that fits a mesh to the picture.

use gemcnn_mesh::{Mesh, vector_area};
use glam::{DVec2, DVec3};

use super::RenderOptions;

/// The coordinate axis that points up in the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Up {
    /// +y is up. The eye is on the +z side at azimuth 0.
    Y,
    /// +z is up. The eye is on the -y side at azimuth 0.
    Z,
}

/// Share of the area that an open surface faces in one direction on average, from which on it is seen from there.
const FACING: f64 = 0.25;
/// How much longer a mesh must be along z than along y to stand along z.
const TALLER: f64 = 1.1;

impl Up {
    /// The axis that probably points up. An open surface such as a terrain or a scan of teeth faces up on average.
    /// Other meshes stand along the longer one of y and z. It is y where neither tells.
    pub fn of(mesh: &Mesh) -> Self {
        let [low, high] = mesh.bounds().unwrap_or_default();
        let size = high - low;
        let scale = size.max_element();
        let areas = (0..mesh.face_count()).map(|face| {
            let corners = mesh.face_positions(face);
            vector_area(corners.map(|corner| (corner - low) / scale))
        });
        let (sum, total) = areas.fold((DVec3::ZERO, 0.0), |(sum, total), area| (sum + area, total + area.length()));
        let faces_one_way = sum.length() > FACING * total;
        let is_z = if faces_one_way { sum.z.abs() > sum.y.abs() } else { size.z > TALLER * size.y };
        if is_z { Self::Z } else { Self::Y }
    }
}

/// A viewing direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// Direction from the mesh towards the eye. Its length does not matter.
    pub towards_eye: DVec3,
    /// Direction that points up in the picture. If it is parallel to `towards_eye`, another one is chosen.
    pub up: DVec3,
}

impl Default for View {
    /// A three-quarter view with +y up.
    fn default() -> Self {
        Self::orbit(30.0, 20.0, Up::Y)
    }
}

impl View {
    /// The eye at `azimuth` degrees around the up axis, increasing towards +x, and `elevation` degrees above
    /// the horizon.
    ///
    /// ```
    /// use gemcnn_mesh::DVec3;
    /// use gemcnn_view::render::{Up, View};
    /// let from_the_right = View::orbit(90.0, 0.0, Up::Z);
    /// assert!(from_the_right.towards_eye.distance(DVec3::X) < 1e-15);
    /// ```
    pub fn orbit(azimuth: f64, elevation: f64, up: Up) -> Self {
        let (sin_azimuth, cos_azimuth) = azimuth.to_radians().sin_cos();
        let (sin_elevation, cos_elevation) = elevation.to_radians().sin_cos();
        let (front, up) = match up {
            Up::Y => (DVec3::Z, DVec3::Y),
            Up::Z => (DVec3::NEG_Y, DVec3::Z),
        };
        let level = cos_azimuth * front + sin_azimuth * DVec3::X;
        Self { towards_eye: cos_elevation * level + sin_elevation * up, up }
    }

    /// Orthonormal directions: right, up and towards the eye.
    fn axes(&self) -> [DVec3; 3] {
        let eye = unit(self.towards_eye);
        let right = unit(self.up).cross(eye).try_normalize().unwrap_or_else(|| eye.any_orthonormal_vector());
        [right, eye.cross(right), eye]
    }
}

/// Unit vector of a finite nonzero vector, without overflow or underflow.
fn unit(v: DVec3) -> DVec3 {
    (v / v.abs().max_element()).normalize()
}

/// The projection from the space of the mesh to sample coordinates: x to the right, y up, z towards the eye.
/// The unit is a sample, and the centre of everything visible is at the origin.
pub(super) struct Camera {
    axes: [DVec3; 3],
    /// Coordinates are divided by this first, to avoid overflow.
    magnitude: f64,
    centre: DVec3,
    scale: f64,
}

impl Camera {
    /// The camera that fits all points into the picture.
    pub(super) fn fit(points: impl Iterator<Item = DVec3> + Clone, options: &RenderOptions) -> Self {
        let magnitude = points.clone().map(|point| point.abs().max_element()).fold(0.0, f64::max);
        let mut camera = Self {
            axes: options.view.axes(),
            magnitude: if magnitude > 0.0 { magnitude } else { 1.0 },
            centre: DVec3::ZERO,
            scale: 1.0,
        };
        let mut low = DVec3::INFINITY;
        let mut high = DVec3::NEG_INFINITY;
        for point in points {
            let place = camera.place(point);
            low = low.min(place);
            high = high.max(place);
        }
        if low.x <= high.x {
            let size = DVec2::new(options.width.into(), options.height.into());
            let available = (size - 2.0 * options.margin * size.min_element()) * f64::from(options.supersampling);
            let scale = (available / (high - low).truncate()).min_element();
            camera.centre = 0.5 * (low + high);
            if scale.is_finite() {
                camera.scale = scale;
            }
        }
        camera
    }

    /// Projects a point.
    pub(super) fn place(&self, point: DVec3) -> DVec3 {
        let point = point / self.magnitude;
        let [right, up, eye] = self.axes;
        let seen = DVec3::new(right.dot(point), up.dot(point), eye.dot(point));
        self.scale * (seen - self.centre)
    }
}
