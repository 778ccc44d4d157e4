/* Subgrid stress, measured and modelled. A tensor field is (dims, dims, size...), symmetric. */
#include "estimator/estimator.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/fields.h"

#include <math.h>
#include <string.h>

/* A velocity as f64 (dims, points), and its box. */
typedef struct flow {
    int dims;
    int64_t points;
    lki_box box;
    lk_tensor *velocity;
} flow;

static lk_status begin_flow(flow *flow, const lk_tensor *velocity, int dims)
{
    int64_t samples, channels;
    char text[128];
    LKI_TRY(lki_field_axes(velocity, dims, &flow->box, &samples, &channels));
    if (samples != 1 || channels != dims || velocity->shape.rank != dims + 1)
        return lki_fail(LK_ERR_SHAPE, "a velocity in %d dimensions has as many channels, found shape %s",
                        dims, lk_shape_format(text, sizeof text, velocity->shape));
    flow->dims = dims;
    flow->velocity = lk_tensor_cast(velocity, LK_F64);
    flow->points = lk_tensor_count(velocity) / dims;
    return flow->velocity ? LK_OK : lki_last_status();
}

static const double *component(const flow *flow, int i)
{
    return (const double *)flow->velocity->data + i * flow->points;
}

/* (dims, dims, size...) of f64. */
static lk_tensor *create_stress(const flow *flow)
{
    lk_shape shape = {.rank = flow->dims + 2, .dim = {flow->dims, flow->dims}};
    memcpy(shape.dim + 2, flow->velocity->shape.dim + 1, sizeof *shape.dim * (size_t)flow->dims);
    return lk_tensor_create(LK_F64, shape);
}

static lk_tensor *as_f32(lk_tensor *owned)
{
    lk_tensor *narrow = owned ? lk_tensor_cast(owned, LK_F32) : NULL;
    lk_tensor_free(owned);
    return narrow;
}

/* ---- Measured ---- */

/* All products u_i u_j: (dims, dims, size...). */
static lk_tensor *products(const flow *flow)
{
    lk_tensor *out = create_stress(flow);
    double *at = out ? out->data : NULL;
    for (int i = 0; out && i < flow->dims; i++)
        for (int j = 0; j < flow->dims; j++)
            for (int64_t p = 0; p < flow->points; p++) *at++ = component(flow, i)[p] * component(flow, j)[p];
    return out;
}

/* filter(u_i u_j) - filter(u_i) filter(u_j), f64. */
static lk_tensor *subgrid_stress(const flow *flow, lk_field_filter filter, double size)
{
    lk_tensor *square = products(flow);
    lk_tensor *smooth = square ? filter(flow->velocity, flow->dims, size) : NULL;
    lk_tensor *out = smooth ? filter(square, flow->dims, size) : NULL;
    const double *u = smooth ? smooth->data : NULL;
    double *at = out ? out->data : NULL;
    for (int i = 0; out && i < flow->dims; i++)
        for (int j = 0; j < flow->dims; j++)
            for (int64_t p = 0; p < flow->points; p++)
                *at++ -= u[i * flow->points + p] * u[j * flow->points + p];
    lk_tensor_free(square);
    lk_tensor_free(smooth);
    return out;
}

lk_tensor *lk_reynolds_stress(const lk_tensor *velocity, int dims, lk_field_filter filter, double filter_size)
{
    flow flow;
    if (begin_flow(&flow, velocity, dims)) return NULL;
    lk_tensor *stress = subgrid_stress(&flow, filter, filter_size);
    lk_tensor_free(flow.velocity);
    return as_f32(stress);
}

/* ---- Modelled ---- */

/* The neighbour of a point along an axis, around the border. */
static int64_t neighbour(const lki_box *box, const int64_t at[LK_MAX_SPATIAL], int axis, int64_t step)
{
    int64_t place[LK_MAX_SPATIAL] = {at[0], at[1], at[2]};
    place[axis] = (place[axis] + step + box->size[axis]) % box->size[axis];
    return (place[0] * box->size[1] + place[1]) * box->size[2] + place[2];
}

/* S_ij = (d_j u_i + d_i u_j) / 2 by central differences, multiplied by |S| = sqrt(2 S_ij S_ij). */
static lk_tensor *scaled_strain(const flow *flow, double spacing)
{
    lk_tensor *out = create_stress(flow);
    int64_t at[LK_MAX_SPATIAL], p = 0, n = flow->points;
    const int64_t *size = flow->box.size;
    int dims = flow->dims, first = LK_MAX_SPATIAL - dims;
    for (at[0] = 0; out && at[0] < size[0]; at[0]++)
        for (at[1] = 0; at[1] < size[1]; at[1]++)
            for (at[2] = 0; at[2] < size[2]; at[2]++, p++) {
                double gradient[3][3], squares = 0, strain[3][3];
                for (int j = 0; j < dims; j++) {
                    int64_t after = neighbour(&flow->box, at, first + j, 1);
                    int64_t before = neighbour(&flow->box, at, first + j, -1);
                    for (int i = 0; i < dims; i++)
                        gradient[i][j] =
                            (component(flow, i)[after] - component(flow, i)[before]) / (2 * spacing);
                }
                for (int i = 0; i < dims; i++)
                    for (int j = 0; j < dims; j++) {
                        strain[i][j] = (gradient[i][j] + gradient[j][i]) / 2;
                        squares += strain[i][j] * strain[i][j];
                    }
                for (int i = 0; i < dims * dims; i++)
                    ((double *)out->data)[i * n + p] = sqrt(2 * squares) * strain[i / dims][i % dims];
            }
    return out;
}

static void scale(lk_tensor *tensor, double factor)
{
    for (int64_t i = 0; tensor && i < lk_tensor_count(tensor); i++) ((double *)tensor->data)[i] *= factor;
}

lk_tensor *lk_smagorinsky_stress_with(const lk_tensor *velocity, int dims,
                                      const lk_smagorinsky_stress_options *given)
{
    LKI_TAKE(lk_smagorinsky_stress_options, options, given, NULL);
    flow flow;
    double c = lki_number_or(options.c, 0.16), spacing = lki_number_or(options.spacing, 1);
    double width = lki_number_or(options.width, spacing);
    if (!(spacing > 0 && width > 0))
        return lki_fail_null(LK_ERR_INVALID, "Smagorinsky: width and spacing must be above 0");
    if (begin_flow(&flow, velocity, dims)) return NULL;
    lk_tensor *stress = scaled_strain(&flow, spacing);
    scale(stress, -2 * c * c * width * width);
    lk_tensor_free(flow.velocity);
    return as_f32(stress);
}

/* With tau = -2 C D^2 |S| S_ij at both widths, L = T - filter(tau) = C D^2 M, where M = 2 (filter(|S| S) -
 * ratio^2 |S^| S^): C = <L M> / (D^2 <M M>), L without its trace. */
static lk_status find_c(const flow *fluid, const lk_tensor *strain, int64_t ratio, double spacing, double *c)
{
    flow coarse = *fluid;
    int dims = fluid->dims;
    lk_tensor *l = subgrid_stress(fluid, lk_filter_box, (double)ratio);
    lk_tensor *m = l ? lk_filter_box(strain, dims, (double)ratio) : NULL;
    coarse.velocity = m ? lk_filter_box(fluid->velocity, dims, (double)ratio) : NULL;
    lk_tensor *coarse_strain = coarse.velocity ? scaled_strain(&coarse, spacing) : NULL;
    double lm = 0, mm = 0;
    for (int64_t p = 0; coarse_strain && p < fluid->points; p++) {
        double trace = 0;
        const double *stress = l->data, *fine = m->data, *wide = coarse_strain->data;
        for (int i = 0; i < dims; i++) trace += stress[i * (dims + 1) * fluid->points + p] / dims;
        for (int i = 0; i < dims * dims; i++) {
            int64_t at = i * fluid->points + p;
            double value = 2 * (fine[at] - (double)(ratio * ratio) * wide[at]);
            lm += (stress[at] - (i % (dims + 1) == 0 ? trace : 0)) * value;
            mm += value * value;
        }
    }
    bool whole = coarse_strain != NULL;
    lk_tensor_free(l);
    lk_tensor_free(m);
    lk_tensor_free(coarse.velocity);
    lk_tensor_free(coarse_strain);
    if (!whole) return lki_last_status();
    *c = mm > 0 ? lm / mm / (spacing * spacing) : 0;
    return LK_OK;
}

lk_tensor *lk_dynamic_smagorinsky_stress(const lk_tensor *velocity, int dims, int64_t ratio, double spacing,
                                         double *c_squared)
{
    flow flow;
    double c = 0;
    if (ratio < 2 || !(spacing > 0))
        return lki_fail_null(LK_ERR_INVALID,
                             "Smagorinsky: a ratio of at least 2 and a spacing above 0 are needed");
    if (begin_flow(&flow, velocity, dims)) return NULL;
    lk_tensor *stress = scaled_strain(&flow, spacing);
    if (stress && find_c(&flow, stress, ratio, spacing, &c)) {
        lk_tensor_free(stress);
        stress = NULL;
    }
    scale(stress, -2 * c * spacing * spacing);
    if (c_squared) *c_squared = c;
    lk_tensor_free(flow.velocity);
    return as_f32(stress);
}
