/* Ends a level's file: the table of that level's kernels, under the name LKI_KERNEL_TABLE. */
#include "engine/cpu/kernels/attention.h"
#include "engine/cpu/kernels/conv.h"
#include "engine/cpu/kernels/conv_pairs.h"
#include "engine/cpu/kernels/elementwise.h"
#include "engine/cpu/kernels/gemm.h"
#include "engine/cpu/kernels/loss.h"
#include "engine/cpu/kernels/norm.h"
#include "engine/cpu/kernels/pool.h"
#include "engine/cpu/kernels/random.h"
#include "engine/cpu/kernels/recurrent.h"
#include "engine/cpu/kernels/reduce.h"
#include "engine/cpu/kernels/sparse.h"
#include "engine/cpu/kernels/update.h"
#include "engine/cpu/kernels/winograd.h"

const lki_cpu_kernels LKI_KERNEL_TABLE = {
    .name = LKI_LEVEL_NAME,
    .tile = tile_functions,
    .tile_load = tile_load,
    .tile_save = tile_save,
    .tile_fill = tile_fill,
    .gemm = gemm_range,
    .im2col = im2col,
    .col2im = col2im,
    .pairs = PAIRS,
    .winograd = WINOGRAD,
    .sparse = SPARSE,
    .sum = sum,
    .sum_squares = sum_squares,
    .sum_square_deviations = sum_square_deviations,
    .sum_products = sum_products,
    .largest = largest,
    .magnitude = magnitude,
    .column_sums = column_sums,
    .add_to = add_to,
    .max_to = max_to,
    .scale_shift = scale_shift,
    .softmax = softmax,
    .softmax_grad = softmax_grad,
    .scaled_exp = scaled_exp,
    .loss = loss,
    .loss_grad = loss_grad,
    .update =
        {
            [LK_UPDATE_SGD] = sgd_update,
            [LK_UPDATE_ADAM] = adam_update,
            [LK_UPDATE_ADAMW] = adamw_update,
            [LK_UPDATE_RMSPROP] = rmsprop_update,
            [LK_UPDATE_ADAGRAD] = adagrad_update,
            [LK_UPDATE_NADAM] = nadam_update,
            [LK_UPDATE_RADAM] = radam_update,
            [LK_UPDATE_ADADELTA] = adadelta_update,
            [LK_UPDATE_ADAMAX] = adamax_update,
            [LK_UPDATE_RPROP] = rprop_update,
            [LK_UPDATE_ASGD] = asgd_update,
            [LK_UPDATE_LION] = lion_update,
        },
    .max_pool_plane = max_pool_plane,
    .sum_pool_plane = sum_pool_plane,
    .sum_centered_products = sum_centered_products,
    .blend = blend,
    .center_scale = center_scale,
    .norm_row = norm_row,
    .norm_grad_row = norm_grad_row,
    .recurrent_step = recurrent_step,
    .recurrent_step_back = recurrent_step_back,
    .attention = &attention_kernels,
    .draw_mask = draw_mask,
    .skip_draws = skip_draws,
    .clamp_in_place = clamp_in_place,
};
