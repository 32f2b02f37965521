//! The faces of the mesh and the arrows as triangles in sample coordinates.

use glam::{DVec3, Vec3};
use rayon::prelude::*;

use super::colour::linear_table;
use super::view::Camera;
use super::{Arrow, Paint, RenderError, RenderOptions, Shading};
use gemcnn_mesh::{Mesh, triangulate, vector_area};

/// Cosine of 50 degrees. Adjacent faces with a larger angle between their planes meet in a sharp edge.
const CREASE: f32 = 0.642_787_6;
/// Number of sides of the tube and the cone of an arrow.
const ARROW_SIDES: usize = 16;

/// Triangles with shared vertices (position and colour) and one normal per corner.
pub(super) struct Soup {
    /// Sample coordinates: x to the right, y down, z towards the eye.
    pub(super) positions: Vec<Vec3>,
    /// Linear RGB of every vertex, or of every corner.
    colours: Vec<Vec3>,
    /// How colours vary over a triangle.
    blend: Blend,
    /// Vertex of every corner.
    corner_vertex: Vec<u32>,
    /// Unit normal at every corner: x to the right, y up, z towards the eye.
    corner_normal: Vec<Vec3>,
    pub(super) triangles: Vec<Triangle>,
}

/// How the colours of a triangle follow from those of its corners.
enum Blend {
    /// Interpolated, from vertices.
    Vertices,
    /// Interpolated between vertices of the class that most of a point belongs to; class of every vertex.
    Classes(Vec<u32>),
    /// Interpolated, from corners.
    Corners,
    /// That of the nearest side, from the corners where sides start.
    Sides,
}

/// The colours of a triangle.
pub(super) enum TrianglePaint {
    /// Interpolated between the corners.
    Mean([Vec3; 3]),
    /// Colours and classes of the corners.
    Classes([Vec3; 3], [u32; 3]),
    /// Colours of the sides opposite the corners; `None` for sides that are not edges of the mesh.
    Sides([Option<Vec3>; 3]),
}

impl TrianglePaint {
    /// The colour at a point, given its barycentric weights and its distances from the sides opposite the corners.
    pub(super) fn at(&self, weights: [f32; 3], distances: [f32; 3]) -> Vec3 {
        let mean = |colours: &[Vec3; 3], weights: [f32; 3]| {
            weights[0] * colours[0] + weights[1] * colours[1] + weights[2] * colours[2]
        };
        match self {
            Self::Mean(colours) => mean(colours, weights),
            Self::Classes(colours, [a, b, c]) if a == b && b == c => mean(colours, weights),
            Self::Classes(colours, classes) => {
                let of = |class: u32| {
                    let own = |i: usize| if classes[i] == class { weights[i] } else { 0.0 };
                    std::array::from_fn::<f32, 3, _>(own)
                };
                let share = |class: u32| of(class).iter().sum::<f32>();
                let best =
                    classes.iter().copied().reduce(|best, class| if share(class) > share(best) { class } else { best });
                let best = best.unwrap_or(classes[0]);
                mean(colours, of(best)) / share(best).max(f32::MIN_POSITIVE)
            }
            Self::Sides(colours) => {
                let sides = colours.iter().zip(distances);
                let known = sides.filter_map(|(colour, distance)| Some(((*colour)?, distance)));
                let nearest = known.min_by(|a, b| a.1.total_cmp(&b.1));
                nearest.map_or(Vec3::ZERO, |(colour, _)| colour)
            }
        }
    }
}

/// Three corners, counterclockwise around their normals.
#[derive(Debug, Clone, Copy)]
pub(super) struct Triangle {
    corners: [u32; 3],
    /// True if the side opposite the corner is an edge of the mesh. False for diagonals of a triangulated face
    /// and for arrows.
    pub(super) edges: [bool; 3],
}

impl Soup {
    pub(super) fn new(
        mesh: &Mesh,
        paint: Paint<'_>,
        arrows: &[Arrow],
        options: &RenderOptions,
    ) -> Result<Self, RenderError> {
        let drawn_vertices = mesh.faces().corners().iter();
        let camera = Camera::fit(
            drawn_vertices
                .map(|&vertex| mesh.vertices()[vertex as usize])
                .chain(arrows.iter().flat_map(|arrow| [arrow.from, arrow.to])),
            options,
        );
        let linear = linear_table();
        let to_linear = |colour: [u8; 3]| Vec3::from(colour.map(|byte| linear[byte as usize]));

        let places: Vec<DVec3> = mesh.vertices().par_iter().map(|&vertex| camera.place(vertex)).collect();
        let mut soup = Self {
            positions: Vec::new(),
            colours: match paint {
                Paint::Surface => vec![to_linear(options.surface); places.len()],
                Paint::Smooth(colours) | Paint::Classes { colours, .. } | Paint::Sides(colours) => {
                    colours.iter().map(|&colour| to_linear(colour)).collect()
                }
                Paint::Faces(colours) => {
                    let of_face =
                        |(face, &colour): (&[u32], &[u8; 3])| std::iter::repeat_n(to_linear(colour), face.len());
                    mesh.faces().iter().zip(colours).flat_map(of_face).collect()
                }
            },
            blend: match paint {
                Paint::Surface | Paint::Smooth(_) => Blend::Vertices,
                Paint::Classes { classes, .. } => Blend::Classes(classes.to_vec()),
                Paint::Faces(_) => Blend::Corners,
                Paint::Sides(_) => Blend::Sides,
            },
            corner_vertex: mesh.faces().corners().to_vec(),
            corner_normal: corner_normals(mesh, &places, options.shading),
            triangles: Vec::new(),
        };
        soup.triangulate_faces(mesh, &places);
        soup.positions = places.iter().map(|place| place.as_vec3()).collect();

        let corners = arrows.len().saturating_mul(Arrow3d::CORNERS);
        if soup.corner_vertex.len().saturating_add(corners) >= u32::MAX as usize {
            return Err(RenderError::TooManyArrows { arrows: arrows.len() });
        }
        let radius = 0.5 * options.arrow_width * f64::from(options.supersampling);
        for arrow in arrows {
            let ends = [camera.place(arrow.from), camera.place(arrow.to)];
            if let Some(arrow_3d) = Arrow3d::new(ends, radius) {
                soup.push_arrow(&arrow_3d, to_linear(arrow.colour));
            }
        }

        // Move the origin from the centre to the top left corner, and let y point down.
        let samples = options.supersampling as f32;
        let middle = 0.5 * samples * Vec3::new(options.width as f32, options.height as f32, 0.0);
        for position in &mut soup.positions {
            *position = middle + Vec3::new(position.x, -position.y, position.z);
        }
        Ok(soup)
    }

    /// Positions of the corners of a triangle.
    pub(super) fn positions_of(&self, triangle: &Triangle) -> [Vec3; 3] {
        triangle.corners.map(|corner| self.positions[self.corner_vertex[corner as usize] as usize])
    }

    /// Normals at the corners of a triangle.
    pub(super) fn normals_of(&self, triangle: &Triangle) -> [Vec3; 3] {
        triangle.corners.map(|corner| self.corner_normal[corner as usize])
    }

    /// Colours of a triangle.
    pub(super) fn paint_of(&self, triangle: &Triangle) -> TrianglePaint {
        let vertices = || {
            let vertex = |corner: u32| self.corner_vertex[corner as usize] as usize;
            triangle.corners.map(vertex)
        };
        let of_corners = || triangle.corners.map(|corner| self.colours[corner as usize]);
        match &self.blend {
            Blend::Vertices => TrianglePaint::Mean(vertices().map(|v| self.colours[v])),
            Blend::Classes(classes) => {
                let vertices = vertices();
                TrianglePaint::Classes(vertices.map(|v| self.colours[v]), vertices.map(|v| classes[v]))
            }
            Blend::Corners => TrianglePaint::Mean(of_corners()),
            // Arrows have no edges.
            Blend::Sides if triangle.edges == [false; 3] => TrianglePaint::Mean(of_corners()),
            Blend::Sides => {
                let colours = of_corners();
                // The side opposite a corner starts at the next one.
                let side = |i: usize| triangle.edges[i].then_some(colours[(i + 1) % 3]);
                TrianglePaint::Sides(std::array::from_fn(side))
            }
        }
    }

    /// Triangulates every face.
    fn triangulate_faces(&mut self, mesh: &Mesh, places: &[DVec3]) {
        let faces = mesh.faces();
        self.triangles.reserve(faces.corners().len().saturating_sub(2 * faces.len()));
        let mut corners = Vec::new();
        let mut cuts = Vec::new();
        for (face, &start) in faces.iter().zip(faces.offsets()) {
            corners.clear();
            corners.extend(face.iter().map(|&vertex| places[vertex as usize]));
            triangulate(&corners, vector_area(corners.iter().copied()), &mut cuts);
            let neighbours = |a: usize, b: usize| [1, face.len() - 1].contains(&a.abs_diff(b));
            self.triangles.extend(cuts.iter().map(|&[a, b, c]| Triangle {
                corners: [a, b, c].map(|corner| start + corner as u32),
                edges: [neighbours(b, c), neighbours(c, a), neighbours(a, b)],
            }));
        }
    }

    fn push_arrow(&mut self, arrow: &Arrow3d, colour: Vec3) {
        arrow.triangles(|positions, normals| {
            let first = self.corner_vertex.len() as u32;
            for (position, normal) in positions.into_iter().zip(normals) {
                self.corner_vertex.push(self.positions.len() as u32);
                if let Blend::Classes(classes) = &mut self.blend {
                    classes.push(u32::MAX);
                }
                self.positions.push(position.as_vec3());
                self.colours.push(colour);
                self.corner_normal.push(normal.as_vec3());
            }
            self.triangles.push(Triangle { corners: [first, first + 1, first + 2], edges: [false; 3] });
        });
    }
}

/// Unit normal at every corner of every face, on the side from which the face is counterclockwise.
///
/// A smooth normal is the area-weighted mean over the faces around the vertex that meet this face without a
/// crease. Their normals are flipped to the side of this face, so inconsistent orientation has no effect.
fn corner_normals(mesh: &Mesh, places: &[DVec3], shading: Shading) -> Vec<Vec3> {
    let faces = mesh.faces();
    let (units, areas): (Vec<Vec3>, Vec<f32>) = (0..faces.len())
        .into_par_iter()
        .map(|face| {
            let corners = faces.get(face).iter();
            let area = vector_area(corners.map(|&vertex| places[vertex as usize]));
            (area.normalize_or_zero().as_vec3(), area.length() as f32)
        })
        .unzip();
    if shading == Shading::Flat {
        return faces.iter().zip(units).flat_map(|(face, unit)| std::iter::repeat_n(unit, face.len())).collect();
    }
    let (starts, around) = faces_around_vertices(mesh);
    (0..faces.len())
        .into_par_iter()
        .flat_map_iter(|face| {
            let unit = units[face];
            let (starts, around, units, areas) = (&starts, &around, &units, &areas);
            faces.get(face).iter().map(move |&vertex| {
                let vertex = vertex as usize;
                let mut sum = Vec3::ZERO;
                for &other in &around[starts[vertex] as usize..starts[vertex + 1] as usize] {
                    let other = other as usize;
                    let along = unit.dot(units[other]);
                    if along.abs() >= CREASE {
                        sum += areas[other].copysign(along) * units[other];
                    }
                }
                sum.try_normalize().unwrap_or(unit)
            })
        })
        .collect()
}

/// The faces around every vertex, as compressed rows: starts and faces.
fn faces_around_vertices(mesh: &Mesh) -> (Vec<u32>, Vec<u32>) {
    let corners = mesh.faces().corners();
    let mut starts = vec![0_u32; mesh.vertex_count() + 1];
    for &vertex in corners {
        starts[vertex as usize + 1] += 1;
    }
    for vertex in 0..mesh.vertex_count() {
        starts[vertex + 1] += starts[vertex];
    }
    let mut next = starts.clone();
    let mut around = vec![0; corners.len()];
    for (face, vertices) in mesh.faces().iter().enumerate() {
        for &vertex in vertices {
            let place = &mut next[vertex as usize];
            around[*place as usize] = face as u32;
            *place += 1;
        }
    }
    (starts, around)
}

/// An arrow in sample coordinates: a tube with a cone at its end.
struct Arrow3d {
    from: DVec3,
    neck: DVec3,
    tip: DVec3,
    /// Orthonormal vectors perpendicular to the arrow.
    across: [DVec3; 2],
    radius: f64,
}

impl Arrow3d {
    /// Radius of the cone divided by the radius of the tube.
    const HEAD: f64 = 2.6;
    /// Number of triangle corners per arrow.
    const CORNERS: usize = 6 * 3 * ARROW_SIDES;

    /// The arrow between two points. It is shifted towards the eye by its thickness, so that a tangent arrow is
    /// not hidden by its surface. `None` if it is too short to have a direction.
    fn new([from, to]: [DVec3; 2], radius: f64) -> Option<Self> {
        let length = from.distance(to);
        let along = (to - from).try_normalize()?;
        // A short arrow is thinner, so that the head takes at most half of it.
        let radius = radius.min(length / 12.0);
        let across = along.any_orthonormal_vector();
        let forward = DVec3::Z * (Self::HEAD * radius);
        Some(Self {
            from: from + forward,
            neck: to + forward - along * (6.0 * radius),
            tip: to + forward,
            across: [across, along.cross(across)],
            radius,
        })
    }

    /// Passes the positions and normals of every triangle to `push`.
    fn triangles(&self, mut push: impl FnMut([DVec3; 3], [DVec3; 3])) {
        let along = (self.tip - self.from).normalize();
        let around = |side: usize| {
            let angle = std::f64::consts::TAU * side as f64 / ARROW_SIDES as f64;
            angle.cos() * self.across[0] + angle.sin() * self.across[1]
        };
        let head = Self::HEAD * self.radius;
        // The normals of the cone lean forward by its half angle.
        let slope = head / self.neck.distance(self.tip);
        for side in 0..ARROW_SIDES {
            let [a, b] = [around(side), around((side + 1) % ARROW_SIDES)];
            let tube = |start: DVec3, across: DVec3| start + self.radius * across;
            let cone = |across: DVec3| self.neck + head * across;
            let lean = |across: DVec3| (across + slope * along).normalize();
            push([self.from, tube(self.from, b), tube(self.from, a)], [-along; 3]);
            push([tube(self.from, a), tube(self.from, b), tube(self.neck, b)], [a, b, b]);
            push([tube(self.from, a), tube(self.neck, b), tube(self.neck, a)], [a, b, a]);
            push([tube(self.neck, a), tube(self.neck, b), cone(b)], [-along; 3]);
            push([tube(self.neck, a), cone(b), cone(a)], [-along; 3]);
            push([cone(a), cone(b), self.tip], [lean(a), lean(b), lean(a + b)]);
        }
    }
}
