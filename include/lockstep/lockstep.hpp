// Lockstep from C++17: the C interface with owners, exceptions and lists, and nothing else.
//
//     namespace ls = lockstep;
//     ls::runner_ptr runner = ls::supervised_runner();
//     ls::train(runner, [](auto &o) {
//         o.model = ls::sequential({ls::flatten(), ls::linear(28 * 28, 10)});
//         o.criterion = ls::cross_entropy_loss();
//         o.optimizer = ls::adam([](auto &o) { o.lr = 0.02; });
//         o.loaders = ls::loaders({{"train", ls::loader(ls::mnist("data"))}});
//     });
//
// Names: lk_adam(.lr = 0.02) in C is lockstep::adam(fill) here. `fill` is a function that gets the
// C options, all of them at their defaults, and sets fields; it may be left out. What comes before
// the named arguments in C comes before it here. The C headers say what each function does and what
// each field means.
//
// Life: an object that a function returns belongs to you, in a handle that frees it and that can be
// moved, not copied. A handle that is moved into a call, or into a field of the options, is handed
// over as in C. If filling in the options throws, what was handed over to them is freed.
// `handle.get()` lends the C object to C functions.
//
// Errors: what returns a status or NULL in C throws lockstep::error here, with the text of
// lk_error(). A function of yours that the library calls may throw: the library then stops, and the
// call that began it throws in turn.
//
// Threads: the rules of the C objects hold.
#ifndef LOCKSTEP_LOCKSTEP_HPP
#define LOCKSTEP_LOCKSTEP_HPP

#include <lockstep/lockstep.h>
#include <lockstep/sys/comm.h>

#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep
{

// What went wrong: what() is lk_error(), status() the status that came with it.
class error : public std::runtime_error
{
  public:
    explicit error(lk_status status) : std::runtime_error(lk_error()), status_(status)
    {
    }
    error() : error(lk_error_status())
    {
    }
    lk_status status() const noexcept
    {
        return status_;
    }

  private:
    lk_status status_;
};

// Throws unless the call succeeded: lockstep::check(lk_step_train(step.get(), batch, 2)).
inline void check(lk_status status)
{
    if (status != LK_OK) throw error(status);
}

namespace detail
{

// Everything that was handed over to options which are still being filled in: it is freed unless
// the call that takes it is made. Arrays that the options point at live here, too.
class parts
{
  public:
    parts() : outer_(current())
    {
        current() = this;
    }
    parts(const parts &) = delete;
    parts &operator=(const parts &) = delete;
    ~parts()
    {
        current() = outer_;
        for (auto &part : held_) part.second(part.first);
    }
    void hold(void *object, void (*free)(void *))
    {
        try {
            held_.emplace_back(object, free);
        } catch (...) {
            free(object);
            throw;
        }
    }
    void keep(std::shared_ptr<void> array)
    {
        kept_.push_back(std::move(array));
    }
    void taken() noexcept
    {
        held_.clear();
    }
    static parts *&current()
    {
        static thread_local parts *innermost = nullptr;
        return innermost;
    }

  private:
    parts *outer_;
    std::vector<std::pair<void *, void (*)(void *)>> held_;
    std::vector<std::shared_ptr<void>> kept_;
};

template <class T> struct freed_by;

} // namespace detail

// Owns one object of the library, or none.
template <class T> class handle
{
  public:
    handle() noexcept = default;
    // Takes the object over; NULL throws the error that made it.
    explicit handle(T *object) : object_(object)
    {
        if (!object) throw error();
    }
    handle(handle &&other) noexcept : object_(other.release())
    {
    }
    handle &operator=(handle &&other) noexcept
    {
        if (this != &other) reset(other.release());
        return *this;
    }
    ~handle()
    {
        reset(nullptr);
    }

    T *get() const noexcept
    {
        return object_;
    }
    T *operator->() const noexcept
    {
        return object_;
    }
    explicit operator bool() const noexcept
    {
        return object_ != nullptr;
    }
    T *release() noexcept
    {
        return std::exchange(object_, nullptr);
    }

    // Handing over: `o.model = std::move(model)`, or a handle that has no name. One that has a name
    // does not convert.
    operator T *() &&
    {
        T *object = release();
        if (object && detail::parts::current()) detail::parts::current()->hold(object, free);
        return object;
    }
    operator T *() const & = delete;

  private:
    static void free(void *object)
    {
        detail::freed_by<T>::free(static_cast<T *>(object));
    }
    void reset(T *object) noexcept
    {
        if (object_) free(object_);
        object_ = object;
    }
    T *object_ = nullptr;
};

// module_ptr owns an lk_module, and so on.
#define LOCKSTEP_OWNER_(name, function)                                                                      \
    template <> struct detail::freed_by<lk_##name> {                                                         \
        static void free(lk_##name *object)                                                                  \
        {                                                                                                    \
            function(object);                                                                                \
        }                                                                                                    \
    };                                                                                                       \
    using name##_ptr = handle<lk_##name>;
LOCKSTEP_OWNER_(module, lk_module_free)
LOCKSTEP_OWNER_(criterion, lk_criterion_free)
LOCKSTEP_OWNER_(optimizer, lk_optimizer_free)
LOCKSTEP_OWNER_(scheduler, lk_scheduler_free)
LOCKSTEP_OWNER_(dataset, lk_dataset_free)
LOCKSTEP_OWNER_(tokenizer, lk_tokenizer_free)
LOCKSTEP_OWNER_(sampler, lk_sampler_free)
LOCKSTEP_OWNER_(transform, lk_transform_free)
LOCKSTEP_OWNER_(loader, lk_loader_free)
LOCKSTEP_OWNER_(callback, lk_callback_free)
LOCKSTEP_OWNER_(logger, lk_logger_close)
LOCKSTEP_OWNER_(metric, lk_metric_free)
LOCKSTEP_OWNER_(runner, lk_runner_free)
LOCKSTEP_OWNER_(tensor, lk_tensor_free)
LOCKSTEP_OWNER_(fields, lk_fields_free)
LOCKSTEP_OWNER_(state_dict, lk_state_dict_free)
LOCKSTEP_OWNER_(step, lk_step_free)
LOCKSTEP_OWNER_(comm, lk_comm_free)
LOCKSTEP_OWNER_(estimator, lk_estimator_free)
LOCKSTEP_OWNER_(config, lk_config_free)
LOCKSTEP_OWNER_(predictor, lk_predictor_free)
#undef LOCKSTEP_OWNER_

// A list for a field of the options, or for an argument: its array, and what the items own.
template <class List, class Item> class list
{
  public:
    list() : items_(std::make_shared<std::vector<Item>>())
    {
    }
    // The item's C form, and the object in it, which the list owns until it is handed over.
    template <class T> void add(Item item, T *object)
    {
        items_->push_back(item);
        if (object)
            owned_.emplace_back(object, [](void *o) { detail::freed_by<T>::free(static_cast<T *>(o)); });
    }
    void add(Item item)
    {
        items_->push_back(item);
    }
    list(list &&) noexcept = default;
    list &operator=(list &&) = delete;
    ~list()
    {
        for (auto &part : owned_) part.second(part.first);
    }
    operator List() &&
    {
        detail::parts *parts = detail::parts::current();
        if (!parts)
            throw std::logic_error("a list is handed over in a call of the library, or where its "
                                   "options are filled in");
        parts->keep(items_);
        while (!owned_.empty()) {
            auto part = owned_.back();
            owned_.pop_back();
            parts->hold(part.first, part.second);
        }
        List c;
        c.items = items_->data();
        c.count = static_cast<int>(items_->size());
        return c;
    }

  private:
    std::shared_ptr<std::vector<Item>> items_;
    std::vector<std::pair<void *, void (*)(void *)>> owned_;
};

namespace detail
{

// Items of a list in braces, which are made from left to right, as in C, and are const until they
// are handed over.
template <class T> struct item {
    item(handle<T> &&given) : object(std::move(given))
    {
    }
    mutable handle<T> object;
};
template <class T> struct named {
    named(const char *key_given, handle<T> &&given) : key(key_given), object(std::move(given))
    {
    }
    const char *key;
    mutable handle<T> object;
};

template <class List, class Item, class T> list<List, Item> named_list(std::initializer_list<named<T>> items)
{
    list<List, Item> result;
    for (const named<T> &each : items) {
        result.add(Item{each.key, each.object.get()}, each.object.get());
        each.object.release();
    }
    return result;
}
template <class List, class T> list<List, T *> plain_list(std::initializer_list<item<T>> items)
{
    list<List, T *> result;
    for (const item<T> &each : items) {
        result.add(each.object.get(), each.object.get());
        each.object.release();
    }
    return result;
}

// The objects of a list, which belong to the function that they are passed to.
template <class T> std::vector<T *> released(std::initializer_list<item<T>> items)
{
    std::vector<T *> result;
    result.reserve(items.size());
    for (const item<T> &each : items) result.push_back(each.object.release());
    return result;
}

template <class T, class = void> struct has_size : std::false_type {
};
template <class T>
struct has_size<T, std::void_t<decltype(std::declval<T &>().struct_size)>> : std::true_type {
};
template <class T> void set_size(T &options)
{
    if constexpr (has_size<T>::value) options.struct_size = sizeof options;
}

// A handle or a list becomes what C takes; everything else is passed on as it is.
template <class T> T *in_c(handle<T> &&object)
{
    return std::move(object);
}
template <class List, class Item> List in_c(list<List, Item> &&items)
{
    return std::move(items);
}
template <class T> T &&in_c(T &&value)
{
    return std::forward<T>(value);
}
template <class T> T *in_c(handle<T> &) = delete; // std::move it to hand it over, .get() to lend it

// Calls function(arguments..., options), by value or by pointer as it takes them, after `fill` has
// set the options.
template <class Options, class Function, class Fill, class... Arguments>
auto call_filled(Function function, Fill &&fill, Arguments &&...arguments)
{
    parts parts;
    Options options{};
    set_size(options);
    fill(options);
    std::tuple<decltype(in_c(std::forward<Arguments>(arguments)))...> passed(
        in_c(std::forward<Arguments>(arguments))...);
    parts.taken();
    return std::apply(
        [&](auto &&...c) {
            if constexpr (std::is_invocable_v<Function, decltype(c)..., const Options *>)
                return function(std::forward<decltype(c)>(c)..., &options);
            else
                return function(std::forward<decltype(c)>(c)..., options);
        },
        std::move(passed));
}

// The same with `fill` as the last argument, if it is there.
template <class Options, class Function, class Tuple, size_t... Index>
auto call_with_last(Function function, Tuple &&arguments, std::index_sequence<Index...>)
{
    constexpr size_t last = sizeof...(Index);
    return call_filled<Options>(
        function, std::get<last>(arguments),
        std::forward<std::tuple_element_t<Index, std::decay_t<Tuple>>>(std::get<Index>(arguments))...);
}
template <class Options, class... Arguments> constexpr bool ends_with_fill()
{
    if constexpr (sizeof...(Arguments) == 0)
        return false;
    else
        return std::is_invocable_v<std::tuple_element_t<sizeof...(Arguments) - 1, std::tuple<Arguments...>>,
                                   Options &>;
}
template <class Options, class Function, class... Arguments>
auto call(Function function, Arguments &&...arguments)
{
    if constexpr (ends_with_fill<Options, Arguments &&...>())
        return call_with_last<Options>(function, std::forward_as_tuple(std::forward<Arguments>(arguments)...),
                                       std::make_index_sequence<sizeof...(Arguments) - 1>());
    else
        return call_filled<Options>(
            function, [](Options &) {}, std::forward<Arguments>(arguments)...);
}

// Calls function(arguments...), which has no options.
template <class Function, class... Arguments> auto call_plain(Function function, Arguments &&...arguments)
{
    parts parts;
    std::tuple<decltype(in_c(std::forward<Arguments>(arguments)))...> passed(
        in_c(std::forward<Arguments>(arguments))...);
    parts.taken();
    return std::apply(function, std::move(passed));
}

// An exception that passes through the library: kept in `thrown`, and thrown again when the call is
// over.
template <class Body> lk_status guarded(std::exception_ptr &thrown, Body &&body)
{
    try {
        body();
        return LK_OK;
    } catch (const error &e) {
        thrown = std::current_exception();
        return lk_fail(e.status(), "%s", e.what());
    } catch (const std::exception &e) {
        thrown = std::current_exception();
        return lk_fail(LK_ERR_STOPPED, "%s", e.what());
    } catch (...) {
        thrown = std::current_exception();
        return lk_fail(LK_ERR_STOPPED, "a function threw what is no std::exception");
    }
}

} // namespace detail

inline lk_shape shape(std::initializer_list<int64_t> dims)
{
    lk_shape result{};
    if (dims.size() > LK_MAX_DIMS) throw std::length_error("lockstep::shape: too many dimensions");
    for (int64_t dim : dims) result.dim[result.rank++] = dim;
    return result;
}

// ---- Lists ----

using named_loader = detail::named<lk_loader>;
using named_dataset = detail::named<lk_dataset>;
using named_module = detail::named<lk_module>;
using named_tensor = detail::named<lk_tensor>;

// loaders({{"train", loader(...)}, {"valid", loader(...)}})
inline auto loaders(std::initializer_list<named_loader> items)
{
    return detail::named_list<lk_loader_list, lk_named_loader>(items);
}
inline auto datasets(std::initializer_list<named_dataset> items)
{
    return detail::named_list<lk_dataset_list, lk_named_dataset>(items);
}
inline auto children(std::initializer_list<named_module> items)
{
    return detail::named_list<lk_named_module_list, lk_named_module>(items);
}
// callbacks({accuracy_callback(), timer_callback()})
inline auto callbacks(std::initializer_list<detail::item<lk_callback>> items)
{
    return detail::plain_list<lk_callback_list>(items);
}
inline auto loggers(std::initializer_list<detail::item<lk_logger>> items)
{
    return detail::plain_list<lk_logger_list>(items);
}
inline auto transforms(std::initializer_list<detail::item<lk_transform>> items)
{
    return detail::plain_list<lk_transform_list>(items);
}
inline auto schedulers(std::initializer_list<detail::item<lk_scheduler>> items)
{
    return detail::plain_list<lk_scheduler_list>(items);
}
// Lists without owners: names({"u", "b"}), numbers({0, 1}), milestones({30, 80}),
// hparams({{"width", "8"}}).
template <class List, class Item> list<List, Item> values(std::initializer_list<Item> items)
{
    list<List, Item> result;
    for (const Item &item : items) result.add(item);
    return result;
}
inline auto names(std::initializer_list<const char *> items)
{
    return values<lk_name_list, const char *>(items);
}
inline auto numbers(std::initializer_list<double> items)
{
    return values<lk_number_list, double>(items);
}
inline auto milestones(std::initializer_list<int64_t> items)
{
    return values<lk_milestone_list, int64_t>(items);
}
inline auto hparams(std::initializer_list<lk_hparam> items)
{
    return values<lk_hparam_list, lk_hparam>(items);
}
inline auto param_groups(std::initializer_list<lk_param_group> items)
{
    return values<lk_param_group_list, lk_param_group>(items);
}

// ---- Constructors: lockstep::NAME(arguments..., fill) is lk_NAME(arguments..., fields) ----

#define LOCKSTEP_MAKE_(owner, name, options)                                                                 \
    template <class... Arguments> owner name(Arguments &&...arguments)                                       \
    {                                                                                                        \
        return owner(detail::call<options>(lk_##name##_with, std::forward<Arguments>(arguments)...));        \
    }
#define LOCKSTEP_PLAIN_(owner, name)                                                                         \
    template <class... Arguments> owner name(Arguments &&...arguments)                                       \
    {                                                                                                        \
        return owner(detail::call_plain(lk_##name, std::forward<Arguments>(arguments)...));                  \
    }

// clang-format off
// nn.h
LOCKSTEP_MAKE_(module_ptr, custom_module, lk_custom_module_options)
LOCKSTEP_MAKE_(module_ptr, linear, lk_linear_options)
LOCKSTEP_MAKE_(module_ptr, conv1d, lk_conv_options)
LOCKSTEP_MAKE_(module_ptr, conv2d, lk_conv_options)
LOCKSTEP_MAKE_(module_ptr, conv3d, lk_conv_options)
LOCKSTEP_MAKE_(module_ptr, conv_transpose1d, lk_conv_options)
LOCKSTEP_MAKE_(module_ptr, conv_transpose2d, lk_conv_options)
LOCKSTEP_MAKE_(module_ptr, conv_transpose3d, lk_conv_options)
LOCKSTEP_MAKE_(module_ptr, max_pool1d, lk_pool_options)
LOCKSTEP_MAKE_(module_ptr, max_pool2d, lk_pool_options)
LOCKSTEP_MAKE_(module_ptr, max_pool3d, lk_pool_options)
LOCKSTEP_MAKE_(module_ptr, avg_pool1d, lk_pool_options)
LOCKSTEP_MAKE_(module_ptr, avg_pool2d, lk_pool_options)
LOCKSTEP_MAKE_(module_ptr, avg_pool3d, lk_pool_options)
LOCKSTEP_MAKE_(module_ptr, adaptive_avg_pool1d, lk_adaptive_pool_options)
LOCKSTEP_MAKE_(module_ptr, adaptive_avg_pool2d, lk_adaptive_pool_options)
LOCKSTEP_MAKE_(module_ptr, adaptive_avg_pool3d, lk_adaptive_pool_options)
LOCKSTEP_MAKE_(module_ptr, upsample, lk_upsample_options)
LOCKSTEP_MAKE_(module_ptr, batch_norm1d, lk_batch_norm_options)
LOCKSTEP_MAKE_(module_ptr, batch_norm2d, lk_batch_norm_options)
LOCKSTEP_MAKE_(module_ptr, batch_norm3d, lk_batch_norm_options)
LOCKSTEP_MAKE_(module_ptr, group_norm, lk_norm_options)
LOCKSTEP_MAKE_(module_ptr, leaky_relu, lk_leaky_relu_options)
LOCKSTEP_MAKE_(module_ptr, elu, lk_elu_options)
LOCKSTEP_MAKE_(module_ptr, gelu, lk_gelu_options)
LOCKSTEP_MAKE_(module_ptr, softplus, lk_softplus_options)
LOCKSTEP_MAKE_(module_ptr, dropout, lk_dropout_options)
LOCKSTEP_MAKE_(module_ptr, embedding, lk_embedding_options)
LOCKSTEP_MAKE_(module_ptr, flatten, lk_flatten_options)
LOCKSTEP_MAKE_(module_ptr, lstm, lk_recurrent_options)
LOCKSTEP_MAKE_(module_ptr, gru, lk_recurrent_options)
LOCKSTEP_MAKE_(module_ptr, rnn, lk_recurrent_options)
LOCKSTEP_MAKE_(module_ptr, lstm_cell, lk_recurrent_cell_options)
LOCKSTEP_MAKE_(module_ptr, gru_cell, lk_recurrent_cell_options)
LOCKSTEP_MAKE_(module_ptr, rnn_cell, lk_recurrent_cell_options)
LOCKSTEP_MAKE_(module_ptr, multihead_attention, lk_multihead_attention_options)
LOCKSTEP_MAKE_(module_ptr, transformer_encoder_layer, lk_transformer_encoder_layer_options)
LOCKSTEP_MAKE_(module_ptr, transformer_encoder, lk_transformer_encoder_options)
LOCKSTEP_MAKE_(module_ptr, transformer_decoder_layer, lk_transformer_decoder_layer_options)
LOCKSTEP_MAKE_(module_ptr, transformer_decoder, lk_transformer_decoder_options)
LOCKSTEP_MAKE_(module_ptr, transformer, lk_transformer_options)
LOCKSTEP_MAKE_(module_ptr, learned_positions, lk_positions_options)
LOCKSTEP_MAKE_(module_ptr, sinusoidal_positions, lk_positions_options)
LOCKSTEP_MAKE_(module_ptr, rotary_positions, lk_rotary_positions_options)
LOCKSTEP_MAKE_(criterion_ptr, cross_entropy_loss, lk_cross_entropy_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, nll_loss, lk_nll_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, bce_loss, lk_bce_options)
LOCKSTEP_MAKE_(criterion_ptr, bce_with_logits_loss, lk_bce_options)
LOCKSTEP_MAKE_(criterion_ptr, mse_loss, lk_regression_options)
LOCKSTEP_MAKE_(criterion_ptr, l1_loss, lk_regression_options)
LOCKSTEP_MAKE_(criterion_ptr, smooth_l1_loss, lk_regression_options)
LOCKSTEP_MAKE_(criterion_ptr, huber_loss, lk_regression_options)
LOCKSTEP_MAKE_(criterion_ptr, kl_div_loss, lk_kl_div_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, soft_margin_loss, lk_margin_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, hinge_embedding_loss, lk_margin_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, poisson_nll_loss, lk_poisson_nll_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, multi_margin_loss, lk_multi_margin_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, multi_label_soft_margin_loss, lk_multi_margin_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, triplet_margin_loss, lk_triplet_margin_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, cosine_embedding_loss, lk_pair_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, margin_ranking_loss, lk_pair_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, gaussian_nll_loss, lk_gaussian_nll_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, ctc_loss, lk_ctc_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, multi_label_margin_loss, lk_multi_label_margin_loss_options)
LOCKSTEP_MAKE_(criterion_ptr, custom_criterion, lk_custom_criterion_options)
LOCKSTEP_PLAIN_(module_ptr, relu)
LOCKSTEP_PLAIN_(module_ptr, silu)
LOCKSTEP_PLAIN_(module_ptr, softmax2d)
LOCKSTEP_PLAIN_(module_ptr, channel_shuffle)
LOCKSTEP_PLAIN_(module_ptr, tanh)
LOCKSTEP_PLAIN_(module_ptr, sigmoid)
LOCKSTEP_PLAIN_(module_ptr, identity)
LOCKSTEP_PLAIN_(module_ptr, softmax)
LOCKSTEP_PLAIN_(module_ptr, log_softmax)
LOCKSTEP_PLAIN_(module_ptr, unflatten)
LOCKSTEP_PLAIN_(module_ptr, function)
LOCKSTEP_PLAIN_(module_ptr, module_clone)
LOCKSTEP_PLAIN_(module_ptr, module_from_config)
LOCKSTEP_MAKE_(module_ptr, glu, lk_glu_options)
LOCKSTEP_MAKE_(module_ptr, hardtanh, lk_hardtanh_options)
LOCKSTEP_MAKE_(module_ptr, celu, lk_celu_options)
LOCKSTEP_MAKE_(module_ptr, hardshrink, lk_shrink_options)
LOCKSTEP_MAKE_(module_ptr, softshrink, lk_shrink_options)
LOCKSTEP_MAKE_(module_ptr, prelu, lk_prelu_options)
LOCKSTEP_MAKE_(module_ptr, instance_norm1d, lk_instance_norm_options)
LOCKSTEP_MAKE_(module_ptr, instance_norm2d, lk_instance_norm_options)
LOCKSTEP_MAKE_(module_ptr, instance_norm3d, lk_instance_norm_options)
LOCKSTEP_MAKE_(module_ptr, dropout1d, lk_dropout_options)
LOCKSTEP_MAKE_(module_ptr, dropout2d, lk_dropout_options)
LOCKSTEP_MAKE_(module_ptr, dropout3d, lk_dropout_options)
LOCKSTEP_MAKE_(module_ptr, adaptive_max_pool1d, lk_adaptive_pool_options)
LOCKSTEP_MAKE_(module_ptr, adaptive_max_pool2d, lk_adaptive_pool_options)
LOCKSTEP_MAKE_(module_ptr, adaptive_max_pool3d, lk_adaptive_pool_options)
LOCKSTEP_MAKE_(module_ptr, unfold, lk_unfold_options)
LOCKSTEP_MAKE_(module_ptr, fold, lk_unfold_options)
LOCKSTEP_MAKE_(module_ptr, local_response_norm, lk_local_response_norm_options)
LOCKSTEP_MAKE_(module_ptr, lp_pool1d, lk_lp_pool_options)
LOCKSTEP_MAKE_(module_ptr, lp_pool2d, lk_lp_pool_options)
LOCKSTEP_MAKE_(module_ptr, alpha_dropout, lk_dropout_options)
LOCKSTEP_MAKE_(module_ptr, feature_alpha_dropout, lk_dropout_options)
LOCKSTEP_MAKE_(module_ptr, rrelu, lk_rrelu_options)
LOCKSTEP_MAKE_(module_ptr, cosine_similarity, lk_similarity_options)
LOCKSTEP_MAKE_(module_ptr, pairwise_distance, lk_similarity_options)
LOCKSTEP_MAKE_(module_ptr, bilinear, lk_linear_options)
LOCKSTEP_MAKE_(module_ptr, embedding_bag, lk_embedding_bag_options)
LOCKSTEP_MAKE_(module_ptr, zero_pad2d, lk_pad_options)
LOCKSTEP_MAKE_(module_ptr, constant_pad1d, lk_pad_options)
LOCKSTEP_MAKE_(module_ptr, constant_pad2d, lk_pad_options)
LOCKSTEP_MAKE_(module_ptr, constant_pad3d, lk_pad_options)
LOCKSTEP_MAKE_(module_ptr, reflection_pad1d, lk_pad_options)
LOCKSTEP_MAKE_(module_ptr, reflection_pad2d, lk_pad_options)
LOCKSTEP_MAKE_(module_ptr, reflection_pad3d, lk_pad_options)
LOCKSTEP_MAKE_(module_ptr, replication_pad1d, lk_pad_options)
LOCKSTEP_MAKE_(module_ptr, replication_pad2d, lk_pad_options)
LOCKSTEP_MAKE_(module_ptr, replication_pad3d, lk_pad_options)
LOCKSTEP_PLAIN_(module_ptr, relu6)
LOCKSTEP_PLAIN_(module_ptr, hardsigmoid)
LOCKSTEP_PLAIN_(module_ptr, hardswish)
LOCKSTEP_PLAIN_(module_ptr, mish)
LOCKSTEP_PLAIN_(module_ptr, selu)
LOCKSTEP_PLAIN_(module_ptr, log_sigmoid)
LOCKSTEP_PLAIN_(module_ptr, softsign)
LOCKSTEP_PLAIN_(module_ptr, tanhshrink)
LOCKSTEP_PLAIN_(module_ptr, softmin)
LOCKSTEP_PLAIN_(module_ptr, threshold)
// models.h
LOCKSTEP_MAKE_(module_ptr, resnet, lk_resnet_options)
LOCKSTEP_MAKE_(module_ptr, vgg, lk_vgg_options)
LOCKSTEP_MAKE_(module_ptr, mobilenet_v2, lk_mobilenet_options)
LOCKSTEP_MAKE_(module_ptr, mobilenet_v3_small, lk_mobilenet_options)
LOCKSTEP_MAKE_(module_ptr, mobilenet_v3_large, lk_mobilenet_options)
LOCKSTEP_MAKE_(module_ptr, efficientnet_b0, lk_efficientnet_options)
LOCKSTEP_MAKE_(module_ptr, unet, lk_unet_options)
LOCKSTEP_MAKE_(module_ptr, vit_b_16, lk_vit_options)
LOCKSTEP_MAKE_(module_ptr, gpt2, lk_gpt2_options)
LOCKSTEP_MAKE_(module_ptr, bert, lk_bert_options)
LOCKSTEP_MAKE_(module_ptr, char_lstm, lk_char_lstm_options)
// nodes.h
LOCKSTEP_MAKE_(module_ptr, attend, lk_attend_options)
LOCKSTEP_PLAIN_(module_ptr, add)
LOCKSTEP_PLAIN_(module_ptr, sub)
LOCKSTEP_PLAIN_(module_ptr, mul)
LOCKSTEP_PLAIN_(module_ptr, div)
LOCKSTEP_PLAIN_(module_ptr, matmul)
LOCKSTEP_PLAIN_(module_ptr, cat)
LOCKSTEP_PLAIN_(module_ptr, stack)
LOCKSTEP_PLAIN_(module_ptr, permute)
LOCKSTEP_PLAIN_(module_ptr, transpose)
LOCKSTEP_PLAIN_(module_ptr, reshape)
LOCKSTEP_PLAIN_(module_ptr, mean)
LOCKSTEP_PLAIN_(module_ptr, select)
LOCKSTEP_PLAIN_(module_ptr, slice)
LOCKSTEP_PLAIN_(module_ptr, places)
LOCKSTEP_PLAIN_(module_ptr, lambda)
LOCKSTEP_PLAIN_(module_ptr, pixel_shuffle)
LOCKSTEP_PLAIN_(module_ptr, pixel_unshuffle)
// optim.h
LOCKSTEP_MAKE_(optimizer_ptr, sgd, lk_sgd_options)
LOCKSTEP_MAKE_(optimizer_ptr, adam, lk_adam_options)
LOCKSTEP_MAKE_(optimizer_ptr, adamw, lk_adam_options)
LOCKSTEP_MAKE_(optimizer_ptr, lamb, lk_adam_options)
LOCKSTEP_MAKE_(optimizer_ptr, catalyst_lamb, lk_catalyst_lamb_options)
LOCKSTEP_MAKE_(optimizer_ptr, rmsprop, lk_rmsprop_options)
LOCKSTEP_MAKE_(optimizer_ptr, adagrad, lk_adagrad_options)
LOCKSTEP_MAKE_(optimizer_ptr, nadam, lk_nadam_options)
LOCKSTEP_MAKE_(optimizer_ptr, radam, lk_radam_options)
LOCKSTEP_MAKE_(optimizer_ptr, adamax, lk_adamax_options)
LOCKSTEP_MAKE_(optimizer_ptr, adadelta, lk_adadelta_options)
LOCKSTEP_MAKE_(optimizer_ptr, rprop, lk_rprop_options)
LOCKSTEP_MAKE_(optimizer_ptr, asgd, lk_asgd_options)
LOCKSTEP_MAKE_(optimizer_ptr, lion, lk_lion_options)
LOCKSTEP_MAKE_(optimizer_ptr, custom_optimizer, lk_custom_optimizer_options)
// scheduler.h
LOCKSTEP_MAKE_(scheduler_ptr, step_lr, lk_step_lr_options)
LOCKSTEP_MAKE_(scheduler_ptr, multi_step_lr, lk_multi_step_lr_options)
LOCKSTEP_MAKE_(scheduler_ptr, constant_lr, lk_constant_lr_options)
LOCKSTEP_MAKE_(scheduler_ptr, linear_lr, lk_linear_lr_options)
LOCKSTEP_MAKE_(scheduler_ptr, polynomial_lr, lk_polynomial_lr_options)
LOCKSTEP_MAKE_(scheduler_ptr, cosine_annealing_lr, lk_cosine_annealing_lr_options)
LOCKSTEP_MAKE_(scheduler_ptr, cosine_annealing_warm_restarts, lk_cosine_annealing_warm_restarts_options)
LOCKSTEP_MAKE_(scheduler_ptr, one_cycle_lr, lk_one_cycle_lr_options)
LOCKSTEP_MAKE_(scheduler_ptr, cyclic_lr, lk_cyclic_lr_options)
LOCKSTEP_MAKE_(scheduler_ptr, reduce_lr_on_plateau, lk_reduce_lr_on_plateau_options)
LOCKSTEP_MAKE_(scheduler_ptr, sequential_lr, lk_sequential_lr_options)
LOCKSTEP_MAKE_(scheduler_ptr, warmup_lr, lk_warmup_lr_options)
LOCKSTEP_MAKE_(scheduler_ptr, chained_scheduler, lk_chained_scheduler_options)
LOCKSTEP_PLAIN_(scheduler_ptr, multiplicative_lr)
LOCKSTEP_PLAIN_(scheduler_ptr, exponential_lr)
LOCKSTEP_PLAIN_(scheduler_ptr, lambda_lr)
// data.h
LOCKSTEP_MAKE_(sampler_ptr, random_sampler, lk_random_sampler_options)
LOCKSTEP_MAKE_(sampler_ptr, weighted_random_sampler, lk_weighted_random_sampler_options)
LOCKSTEP_MAKE_(sampler_ptr, balance_class_sampler, lk_balance_class_sampler_options)
LOCKSTEP_MAKE_(sampler_ptr, batch_balance_class_sampler, lk_batch_balance_class_sampler_options)
LOCKSTEP_MAKE_(sampler_ptr, mini_epoch_sampler, lk_mini_epoch_sampler_options)
LOCKSTEP_MAKE_(sampler_ptr, distributed_sampler, lk_distributed_sampler_options)
LOCKSTEP_MAKE_(sampler_ptr, distributed_sampler_wrapper, lk_distributed_sampler_options)
LOCKSTEP_MAKE_(transform_ptr, to_tensor, lk_key_options)
LOCKSTEP_MAKE_(transform_ptr, normalize, lk_normalize_options)
LOCKSTEP_MAKE_(transform_ptr, random_crop, lk_random_crop_options)
LOCKSTEP_MAKE_(transform_ptr, random_horizontal_flip, lk_flip_options)
LOCKSTEP_MAKE_(transform_ptr, random_vertical_flip, lk_flip_options)
LOCKSTEP_MAKE_(transform_ptr, random_affine, lk_random_affine_options)
LOCKSTEP_MAKE_(transform_ptr, cutout, lk_cutout_options)
LOCKSTEP_MAKE_(transform_ptr, one_hot, lk_key_options)
LOCKSTEP_MAKE_(transform_ptr, mixup, lk_mix_options)
LOCKSTEP_MAKE_(transform_ptr, cutmix, lk_mix_options)
LOCKSTEP_MAKE_(transform_ptr, pad_collate, lk_pad_collate_options)
LOCKSTEP_MAKE_(loader_ptr, loader, lk_loader_options)
LOCKSTEP_MAKE_(dataset_ptr, mnist, lk_mnist_options)
LOCKSTEP_MAKE_(dataset_ptr, synthetic_digits, lk_synthetic_digits_options)
LOCKSTEP_MAKE_(dataset_ptr, safetensors_dataset, lk_safetensors_dataset_options)
LOCKSTEP_MAKE_(dataset_ptr, csv_dataset, lk_csv_dataset_options)
LOCKSTEP_MAKE_(dataset_ptr, image_folder, lk_image_folder_options)
LOCKSTEP_MAKE_(dataset_ptr, hdf5_dataset, lk_hdf5_dataset_options)
LOCKSTEP_MAKE_(dataset_ptr, token_dataset, lk_token_dataset_options)
LOCKSTEP_MAKE_(dataset_ptr, text_dataset, lk_token_dataset_options)
LOCKSTEP_MAKE_(dataset_ptr, text_lines, lk_text_lines_options)
LOCKSTEP_MAKE_(dataset_ptr, text_stream, lk_text_stream_options)
LOCKSTEP_PLAIN_(tokenizer_ptr, byte_tokenizer)
LOCKSTEP_PLAIN_(tokenizer_ptr, char_tokenizer)
LOCKSTEP_PLAIN_(tokenizer_ptr, char_tokenizer_of)
LOCKSTEP_PLAIN_(tokenizer_ptr, char_tokenizer_of_file)
LOCKSTEP_PLAIN_(tokenizer_ptr, bpe_tokenizer)
LOCKSTEP_PLAIN_(tokenizer_ptr, tokenizer_share)
LOCKSTEP_PLAIN_(sampler_ptr, sequential_sampler)
LOCKSTEP_PLAIN_(sampler_ptr, subset_random_sampler)
LOCKSTEP_PLAIN_(sampler_ptr, custom_sampler)
LOCKSTEP_PLAIN_(dataset_ptr, transformed)
LOCKSTEP_PLAIN_(dataset_ptr, subset)
LOCKSTEP_PLAIN_(dataset_ptr, dataset_share)
LOCKSTEP_PLAIN_(tensor_ptr, npy_read)
LOCKSTEP_PLAIN_(tensor_ptr, hdf5_read)
// vision.h
LOCKSTEP_MAKE_(transform_ptr, resize, lk_resize_options)
LOCKSTEP_MAKE_(transform_ptr, center_crop, lk_center_crop_options)
LOCKSTEP_MAKE_(transform_ptr, pad_picture, lk_pad_picture_options)
LOCKSTEP_MAKE_(transform_ptr, random_resized_crop, lk_random_resized_crop_options)
LOCKSTEP_MAKE_(transform_ptr, grayscale, lk_grayscale_options)
LOCKSTEP_MAKE_(transform_ptr, random_grayscale, lk_chance_options)
LOCKSTEP_MAKE_(transform_ptr, color_jitter, lk_color_jitter_options)
LOCKSTEP_MAKE_(transform_ptr, random_invert, lk_chance_options)
LOCKSTEP_MAKE_(transform_ptr, random_solarize, lk_chance_options)
LOCKSTEP_MAKE_(transform_ptr, random_posterize, lk_chance_options)
LOCKSTEP_MAKE_(transform_ptr, random_autocontrast, lk_chance_options)
LOCKSTEP_MAKE_(transform_ptr, random_equalize, lk_chance_options)
LOCKSTEP_MAKE_(transform_ptr, random_adjust_sharpness, lk_chance_options)
LOCKSTEP_MAKE_(transform_ptr, random_rotation, lk_random_rotation_options)
LOCKSTEP_MAKE_(transform_ptr, random_erasing, lk_random_erasing_options)
LOCKSTEP_MAKE_(transform_ptr, gaussian_blur, lk_gaussian_blur_options)
LOCKSTEP_MAKE_(transform_ptr, random_apply, lk_random_apply_options)
LOCKSTEP_MAKE_(transform_ptr, random_choice, lk_random_choice_options)
LOCKSTEP_MAKE_(dataset_ptr, cifar10, lk_cifar_options)
LOCKSTEP_MAKE_(dataset_ptr, cifar100, lk_cifar_options)
LOCKSTEP_MAKE_(dataset_ptr, fashion_mnist, lk_mnist_options)
LOCKSTEP_MAKE_(dataset_ptr, kmnist, lk_mnist_options)
LOCKSTEP_MAKE_(dataset_ptr, movielens, lk_movielens_options)
LOCKSTEP_PLAIN_(transform_ptr, compose)
LOCKSTEP_PLAIN_(transform_ptr, random_order)
// fields.h
LOCKSTEP_MAKE_(fields_ptr, hdf5_fields, lk_fields_options)
LOCKSTEP_MAKE_(fields_ptr, tensor_fields, lk_fields_options)
// metric.h
LOCKSTEP_MAKE_(metric_ptr, accuracy_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, multilabel_accuracy_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, precision_recall_f1_support_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, multilabel_precision_recall_f1_support_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, auc_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, r2_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, mse_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, mae_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, iou_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, dice_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, hitrate_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, mrr_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, map_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, ndcg_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, trevsky_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, average_precision_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, cohen_kappa_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, matthews_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, calibration_error_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, perplexity_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, bleu_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, mean_metric, lk_metric_options)
LOCKSTEP_MAKE_(metric_ptr, confusion_matrix_metric, lk_metric_options)
// sys/metric.h
LOCKSTEP_MAKE_(metric_ptr, custom_metric, lk_custom_metric_options)
// callback.h
LOCKSTEP_MAKE_(callback_ptr, accuracy_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, multilabel_accuracy_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, precision_recall_f1_support_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, multilabel_precision_recall_f1_support_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, auc_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, r2_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, mse_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, mae_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, iou_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, dice_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, confusion_matrix_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, hitrate_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, mrr_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, map_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, ndcg_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, trevsky_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, average_precision_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, cohen_kappa_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, matthews_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, calibration_error_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, perplexity_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, bleu_callback, lk_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, cmc_score_callback, lk_cmc_score_callback_options)
LOCKSTEP_MAKE_(callback_ptr, metric_aggregation_callback, lk_metric_aggregation_callback_options)
LOCKSTEP_MAKE_(callback_ptr, criterion_callback, lk_criterion_callback_options)
LOCKSTEP_MAKE_(callback_ptr, backward_callback, lk_backward_callback_options)
LOCKSTEP_MAKE_(callback_ptr, optimizer_callback, lk_optimizer_callback_options)
LOCKSTEP_MAKE_(callback_ptr, scheduler_callback, lk_scheduler_callback_options)
LOCKSTEP_MAKE_(callback_ptr, early_stopping_callback, lk_early_stopping_callback_options)
LOCKSTEP_MAKE_(callback_ptr, optuna_pruning_callback, lk_optuna_pruning_callback_options)
LOCKSTEP_MAKE_(callback_ptr, checkpoint_callback, lk_checkpoint_callback_options)
LOCKSTEP_MAKE_(callback_ptr, lr_finder_callback, lk_lr_finder_callback_options)
LOCKSTEP_MAKE_(callback_ptr, control_flow_callback, lk_control_flow_callback_options)
LOCKSTEP_MAKE_(callback_ptr, batch_transform_callback, lk_batch_transform_callback_options)
LOCKSTEP_MAKE_(callback_ptr, ema_callback, lk_ema_callback_options)
LOCKSTEP_MAKE_(callback_ptr, soft_update_callback, lk_soft_update_callback_options)
LOCKSTEP_MAKE_(callback_ptr, mixup_callback, lk_mix_callback_options)
LOCKSTEP_MAKE_(callback_ptr, cutmix_callback, lk_mix_callback_options)
LOCKSTEP_MAKE_(callback_ptr, functional_metric_callback, lk_functional_metric_callback_options)
LOCKSTEP_MAKE_(callback_ptr, onnx_callback, lk_onnx_callback_options)
LOCKSTEP_MAKE_(callback_ptr, quantization_callback, lk_quantization_callback_options)
LOCKSTEP_MAKE_(callback_ptr, pruning_callback, lk_pruning_callback_options)
LOCKSTEP_MAKE_(callback_ptr, profiler_callback, lk_profiler_callback_options)
LOCKSTEP_MAKE_(callback_ptr, running_mean_callback, lk_running_mean_callback_options)
LOCKSTEP_PLAIN_(callback_ptr, metric_callback)
LOCKSTEP_PLAIN_(callback_ptr, skip_checkpoint_callback)
LOCKSTEP_PLAIN_(callback_ptr, timer_callback)
LOCKSTEP_PLAIN_(callback_ptr, once_per_epoch)
LOCKSTEP_PLAIN_(callback_ptr, only_if)
LOCKSTEP_PLAIN_(callback_ptr, swa_callback)
LOCKSTEP_PLAIN_(callback_ptr, l1_weight_decay_callback)
LOCKSTEP_PLAIN_(callback_ptr, l2_weight_decay_callback)
LOCKSTEP_PLAIN_(callback_ptr, gradient_norm_callback)
LOCKSTEP_MAKE_(callback_ptr, histogram_callback, lk_histogram_callback_options)
LOCKSTEP_PLAIN_(callback_ptr, terminate_on_nan_callback)
LOCKSTEP_PLAIN_(callback_ptr, progress_callback)
LOCKSTEP_PLAIN_(callback_ptr, check_run_callback)
LOCKSTEP_PLAIN_(callback_ptr, function_callback)
// logger.h
LOCKSTEP_MAKE_(logger_ptr, console_logger, lk_logger_options)
LOCKSTEP_MAKE_(logger_ptr, csv_logger, lk_logger_options)
LOCKSTEP_MAKE_(logger_ptr, tensorboard_logger, lk_logger_options)
LOCKSTEP_MAKE_(logger_ptr, jsonl_logger, lk_logger_options)
LOCKSTEP_MAKE_(logger_ptr, mlflow_logger, lk_logger_options)
// runner.h
LOCKSTEP_MAKE_(runner_ptr, supervised_runner, lk_supervised_runner_options)
LOCKSTEP_PLAIN_(runner_ptr, custom_runner)
LOCKSTEP_PLAIN_(tensor_ptr, predict_batch)
LOCKSTEP_PLAIN_(state_dict_ptr, module_state_dict)
LOCKSTEP_PLAIN_(state_dict_ptr, load_safetensors)
LOCKSTEP_PLAIN_(state_dict_ptr, state_dict_create)
LOCKSTEP_PLAIN_(state_dict_ptr, state_dict_shrink)
// step.h
LOCKSTEP_MAKE_(step_ptr, step, lk_step_options)
LOCKSTEP_MAKE_(comm_ptr, comm_connect, lk_comm_connect_options)
LOCKSTEP_PLAIN_(tensor_ptr, tensor_create)
LOCKSTEP_PLAIN_(tensor_ptr, tensor_from)
LOCKSTEP_PLAIN_(tensor_ptr, tensor_borrow)
LOCKSTEP_PLAIN_(tensor_ptr, tensor_full)
LOCKSTEP_PLAIN_(tensor_ptr, rand)
LOCKSTEP_PLAIN_(tensor_ptr, randn)
// estimator.h
LOCKSTEP_MAKE_(estimator_ptr, cnn3d, lk_estimator_config)
LOCKSTEP_MAKE_(estimator_ptr, picae, lk_estimator_config)
LOCKSTEP_MAKE_(estimator_ptr, pimlturb1d, lk_estimator_config)
LOCKSTEP_MAKE_(estimator_ptr, pimlturb3d, lk_estimator_config)
LOCKSTEP_MAKE_(estimator_ptr, krr, lk_estimator_config)
LOCKSTEP_MAKE_(estimator_ptr, estimator, lk_estimator_config)
LOCKSTEP_MAKE_(tensor_ptr, smagorinsky_stress, lk_smagorinsky_stress_options)
LOCKSTEP_PLAIN_(estimator_ptr, estimator_open)
LOCKSTEP_PLAIN_(tensor_ptr, estimator_predict)
// predictor.h
LOCKSTEP_MAKE_(predictor_ptr, predictor, lk_predictor_options)
LOCKSTEP_PLAIN_(tensor_ptr, predictor_run)
// clang-format on
#undef LOCKSTEP_MAKE_
#undef LOCKSTEP_PLAIN_

// The parts of a dataset: auto parts = random_split(std::move(dataset), {0.8, 0.2}, 42). A seed of
// 0 is the default generator.
inline std::vector<dataset_ptr> random_split(dataset_ptr dataset, std::initializer_list<double> lengths,
                                             uint64_t seed = 0)
{
    std::vector<lk_dataset *> parts(lengths.size());
    lk_random_split_options options = {};
    options.struct_size = sizeof options;
    options.seed = seed;
    check(lk_random_split_with(dataset.release(), lengths.begin(), static_cast<int>(lengths.size()),
                               parts.data(), &options));
    return std::vector<dataset_ptr>(parts.begin(), parts.end());
}
// sequential({flatten(), linear(784, 10)}): layers one after the other. The braces keep their
// order, in which they draw their first weights.
inline module_ptr sequential(std::initializer_list<detail::item<lk_module>> items)
{
    auto modules = detail::released(items);
    return module_ptr(lk_sequential_with(modules.data(), static_cast<int>(modules.size())));
}
// What they give is added to their input.
inline module_ptr residual(std::initializer_list<detail::item<lk_module>> items)
{
    auto modules = detail::released(items);
    return module_ptr(lk_residual_with(modules.data(), static_cast<int>(modules.size())));
}
// parallel({cat(1), linear(8, 4), linear(8, 4)}): what comes first joins what the others give.
inline module_ptr parallel(std::initializer_list<detail::item<lk_module>> items)
{
    auto modules = detail::released(items);
    if (modules.empty()) throw std::invalid_argument("parallel: expected what joins, and modules");
    return module_ptr(lk_parallel_with(modules[0], modules.data() + 1, static_cast<int>(modules.size()) - 1));
}
// shortcut({linear(8, 4), linear(8, 4), relu()}): what comes first runs beside the others.
inline module_ptr shortcut(std::initializer_list<detail::item<lk_module>> items)
{
    auto modules = detail::released(items);
    if (modules.empty()) throw std::invalid_argument("shortcut: expected a shortcut, and modules");
    return module_ptr(lk_shortcut_with(modules[0], modules.data() + 1, static_cast<int>(modules.size()) - 1));
}
// node_graph({{"conv", conv2d(4, 4, 1)}, {"sum", add(), "conv x"}}); a node without a module uses
// that of the node `same_as`.
struct node {
    node(const char *name_given, module_ptr &&given, const char *inputs_given = nullptr)
        : name(name_given), module(std::move(given)), inputs(inputs_given)
    {
    }
    node(const char *name_given, const char *same_as_given, const char *inputs_given)
        : name(name_given), inputs(inputs_given), same_as(same_as_given)
    {
    }
    const char *name;
    mutable module_ptr module;
    const char *inputs = nullptr, *same_as = nullptr;
};
inline module_ptr node_graph(std::initializer_list<node> items, const char *inputs = nullptr,
                             const char *outputs = nullptr)
{
    std::vector<lk_node> raw;
    raw.reserve(items.size());
    for (const node &item : items)
        raw.push_back({item.name, item.module.release(), item.inputs, item.same_as});
    lk_node_graph_options options{sizeof(lk_node_graph_options), inputs, outputs};
    return module_ptr(lk_node_graph_with({raw.data(), static_cast<int>(raw.size())}, &options));
}
inline module_ptr module_list(std::initializer_list<detail::item<lk_module>> items)
{
    auto modules = detail::released(items);
    return module_ptr(lk_module_list_with(modules.data(), static_cast<int>(modules.size())));
}
inline module_ptr module_dict(std::initializer_list<named_module> items)
{
    return module_ptr(detail::call_plain(lk_module_dict_with, children(items)));
}
inline module_ptr named_sequential(std::initializer_list<named_module> items)
{
    return module_ptr(detail::call_plain(lk_named_sequential_with, children(items)));
}
inline dataset_ptr concat(std::initializer_list<detail::item<lk_dataset>> items)
{
    auto parts = detail::released(items);
    return dataset_ptr(lk_concat_with(parts.data(), static_cast<int>(parts.size())));
}
// tensor_dataset({{"features", std::move(x)}, {"targets", std::move(y)}})
inline dataset_ptr tensor_dataset(std::initializer_list<named_tensor> items)
{
    std::vector<lk_named_tensor> raw;
    raw.reserve(items.size());
    for (const named_tensor &item : items) raw.push_back({item.key, item.object.release()});
    return dataset_ptr(lk_tensor_dataset_with(raw.data(), static_cast<int>(raw.size())));
}
inline dataset_ptr npy_dataset(std::initializer_list<lk_named_file> files)
{
    return dataset_ptr(lk_npy_dataset_with(files.begin(), static_cast<int>(files.size())));
}
inline dataset_ptr cast_fields(dataset_ptr &&whose, std::initializer_list<lk_field_dtype> dtypes)
{
    return dataset_ptr(lk_cast_fields_with(whose.release(), dtypes.begin(), static_cast<int>(dtypes.size())));
}
inline module_ptr rms_norm(lk_shape normalized_shape)
{
    return module_ptr(detail::call<lk_norm_options>(lk_rms_norm_with, normalized_shape));
}
template <class Fill> module_ptr rms_norm(lk_shape normalized_shape, Fill &&fill)
{
    return module_ptr(
        detail::call<lk_norm_options>(lk_rms_norm_with, normalized_shape, std::forward<Fill>(fill)));
}
inline module_ptr layer_norm(lk_shape normalized_shape)
{
    return module_ptr(detail::call<lk_norm_options>(lk_layer_norm_with, normalized_shape));
}
template <class Fill> module_ptr layer_norm(lk_shape normalized_shape, Fill &&fill)
{
    return module_ptr(
        detail::call<lk_norm_options>(lk_layer_norm_with, normalized_shape, std::forward<Fill>(fill)));
}

// Both loaders of physical fields, for estimators: cnn3d(fields_loaders(fields), fill).
template <class... Fill> auto fields_loaders(const fields_ptr &fields, Fill &&...fill)
{
    list<lk_loader_list, lk_named_loader> result;
    for (const char *key : {"train", "valid"}) {
        loader_ptr loader(
            detail::call<lk_fields_loaders_options>(lk_fields_loader, fields.get(), key, fill...));
        result.add(lk_named_loader{key, loader.get()}, loader.get());
        loader.release();
    }
    return result;
}

// A callback of one moment: on(&lk_callback_ops::on_epoch_end, [](lk_runner &runner) { ... }). What
// it throws ends the run with that message.
inline callback_ptr on(lk_callback_slot lk_callback_ops::*moment, std::function<void(lk_runner &)> function)
{
    using held = std::function<void(lk_runner &)>;
    lk_callback_ops ops{};
    detail::set_size(ops);
    detail::set_size(ops);
    ops.name = "function";
    ops.*moment = [](lk_callback *self, lk_runner *runner) -> lk_status {
        std::exception_ptr thrown;
        return detail::guarded(thrown, [&] { (*static_cast<held *>(self->context))(*runner); });
    };
    ops.free = [](lk_callback *self) { delete static_cast<held *>(self->context); };
    auto context = std::make_unique<held>(std::move(function));
    callback_ptr result(lk_function_callback(&ops, context.get()));
    context.release();
    return result;
}

// ---- Runs ----

// train(runner, fill)
template <class... Arguments> void train(runner_ptr &runner, Arguments &&...arguments)
{
    check(detail::call<lk_train_options>(lk_train_with, runner.get(), std::forward<Arguments>(arguments)...));
}
// evaluate_loader(runner, loader, fill): the metrics are runner->loader_metrics.
template <class... Arguments>
void evaluate_loader(runner_ptr &runner, loader_ptr &&loader, Arguments &&...arguments)
{
    check(detail::call<lk_evaluate_options>(lk_evaluate_loader_with, runner.get(), std::move(loader),
                                            std::forward<Arguments>(arguments)...));
}
// predict_loader(runner, loader, [](const lk_tensor &output, const lk_batch &batch) { ... }, fill)
template <class Take, class... Arguments>
void predict_loader(runner_ptr &runner, loader_ptr &&loader, Take &&take, Arguments &&...arguments)
{
    struct context {
        std::remove_reference_t<Take> *take;
        std::exception_ptr thrown;
    } own{&take, nullptr};
    lk_take_prediction each = [](const lk_tensor *output, const lk_batch *batch, void *given) -> lk_status {
        context *own = static_cast<context *>(given);
        return detail::guarded(own->thrown, [&] { (*own->take)(*output, *batch); });
    };
    lk_status status =
        detail::call<lk_evaluate_options>(lk_predict_loader_with, runner.get(), std::move(loader), each,
                                          static_cast<void *>(&own), std::forward<Arguments>(arguments)...);
    if (own.thrown) std::rethrow_exception(own.thrown);
    check(status);
}
// distributed_run([] { ... }, fill): runs the function as each rank.
template <class Body, class... Arguments> void distributed_run(Body &&body, Arguments &&...arguments)
{
    struct context {
        std::remove_reference_t<Body> *body;
        std::exception_ptr thrown;
    } own{&body, nullptr};
    lk_rank_function each = [](void *given) -> lk_status {
        context *own = static_cast<context *>(given);
        return detail::guarded(own->thrown, [&] { (*own->body)(); });
    };
    lk_status status = detail::call<lk_distributed_run_options>(
        lk_distributed_run_with, each, static_cast<void *>(&own), std::forward<Arguments>(arguments)...);
    if (own.thrown) std::rethrow_exception(own.thrown);
    check(status);
}

} // namespace lockstep

#endif
