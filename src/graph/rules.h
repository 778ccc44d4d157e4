/* The rules of all ops, by family: infer gives an op its result's dtype and shape (or refuses its operands),
 * backward records its gradient. rules.c puts them into the one table. */
#ifndef LKI_GRAPH_RULES_H
#define LKI_GRAPH_RULES_H

#include "graph/graph.h"

#define LKI_INFER(name) lk_status lki_infer_##name(lki_node *node)
#define LKI_BACKWARD(name)                                                                                   \
    lk_status lki_backward_##name(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)

/* rules_elementwise.c */
LKI_INFER(full);
LKI_INFER(binary);
LKI_INFER(compare);
LKI_INFER(where);
LKI_INFER(unary);
LKI_INFER(clamp);
LKI_INFER(softplus);
LKI_INFER(cast);
LKI_INFER(copy);
LKI_INFER(fused);
LKI_BACKWARD(add);
LKI_BACKWARD(sub);
LKI_BACKWARD(mul);
LKI_BACKWARD(div);
LKI_BACKWARD(pow);
LKI_BACKWARD(extremum);
LKI_BACKWARD(where);
LKI_BACKWARD(neg);
LKI_BACKWARD(abs);
LKI_BACKWARD(exp);
LKI_BACKWARD(log);
LKI_BACKWARD(sqrt);
LKI_BACKWARD(sin);
LKI_BACKWARD(cos);
LKI_BACKWARD(erf);
LKI_BACKWARD(activation);
LKI_BACKWARD(identity);
LKI_BACKWARD(mul_scalar);
LKI_BACKWARD(pow_scalar);
LKI_BACKWARD(cast);

/* rules_reduce.c */
LKI_INFER(reduce);
LKI_INFER(max_grad);
LKI_INFER(argmax);
LKI_INFER(softmax);
LKI_BACKWARD(sum);
LKI_BACKWARD(mean);
LKI_BACKWARD(max);
LKI_BACKWARD(var);
LKI_BACKWARD(softmax);

/* rules_move.c */
LKI_INFER(reshape);
LKI_INFER(expand);
LKI_INFER(permute);
LKI_INFER(slice);
LKI_INFER(to_shape);
LKI_INFER(concat);
LKI_INFER(pad);
LKI_INFER(gather);
LKI_INFER(embedding);
LKI_BACKWARD(reshape);
LKI_BACKWARD(expand);
LKI_BACKWARD(permute);
LKI_BACKWARD(slice);
LKI_BACKWARD(concat);
LKI_BACKWARD(pad);
LKI_BACKWARD(gather);
LKI_BACKWARD(embedding);

LKI_INFER(scatter);
LKI_BACKWARD(scatter);

/* rules_scan.c */
LKI_INFER(scan);
LKI_INFER(sort);
LKI_INFER(random);
LKI_BACKWARD(cumsum);
LKI_BACKWARD(cumprod);
LKI_BACKWARD(sort);

/* rules_attention.c */
LKI_INFER(attention);
LKI_INFER(attention_grad);
LKI_BACKWARD(attention);
LKI_BACKWARD(attention_grad);

/* custom.c */
LKI_INFER(custom);
LKI_INFER(custom_grad);
LKI_BACKWARD(custom);

/* rules_second.c */
LKI_BACKWARD(activation_grad);
LKI_BACKWARD(max_grad);
LKI_BACKWARD(softmax_grad);
LKI_BACKWARD(linear_map);
LKI_BACKWARD(slices_grad);
LKI_BACKWARD(embedding_grad);
LKI_BACKWARD(max_pool_grad);
LKI_BACKWARD(linear_grad);
LKI_BACKWARD(conv_grad_input);
LKI_BACKWARD(conv_grad_weight);
LKI_BACKWARD(norm_grad);
LKI_BACKWARD(cross_entropy_grad);
LKI_BACKWARD(nll_grad);
LKI_BACKWARD(pointwise_loss_grad);

/* rules_product.c */
LKI_INFER(matmul);
LKI_INFER(linear);
LKI_INFER(linear_grad);
LKI_BACKWARD(matmul);
LKI_BACKWARD(linear);

/* rules_conv.c */
LKI_INFER(conv);
LKI_INFER(conv_transpose);
LKI_INFER(conv_grad_weight);
LKI_BACKWARD(conv);
LKI_BACKWARD(conv_transpose);

/* rules_pool.c */
LKI_INFER(pool);
LKI_INFER(adaptive_pool);
LKI_INFER(upsample);
LKI_BACKWARD(max_pool);
LKI_BACKWARD(pool);
LKI_BACKWARD(upsample);

/* rules_norm.c */
LKI_INFER(batch_norm);
LKI_INFER(batch_norm_relu);
LKI_INFER(layer_norm);
LKI_INFER(group_norm);
LKI_INFER(norm_grad);
LKI_INFER(dropout);
LKI_INFER(dropout_grad);
LKI_BACKWARD(norm);
LKI_BACKWARD(dropout);

/* rules_recurrent.c */
LKI_INFER(recurrent);
LKI_INFER(recurrent_grad);
LKI_INFER(recurrent_grad_weight);
LKI_BACKWARD(recurrent);

/* rules_loss.c */
LKI_INFER(cross_entropy);
LKI_INFER(nll);
LKI_INFER(pointwise_loss);
LKI_INFER(pointwise_loss_with_grad);
LKI_INFER(loss_grad);
LKI_BACKWARD(cross_entropy);
LKI_BACKWARD(nll);
LKI_BACKWARD(pointwise_loss);

/* rules_comm.c */
LKI_INFER(all_reduce);
LKI_BACKWARD(all_reduce);

#endif
