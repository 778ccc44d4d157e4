// lockstep.hpp: errors are exceptions, what is handed over is freed once whatever throws, and lists keep
// their order.
#include <lockstep/lockstep.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

namespace ls = lockstep;

static int failures;

#define EXPECT(condition)                                                                                    \
    do {                                                                                                     \
        if (!(condition)) failures++, std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);   \
    } while (0)

template <class Body> static std::string thrown_by(Body &&body)
{
    try {
        body();
    } catch (const ls::error &e) {
        EXPECT(e.status() != LK_OK);
        return e.what();
    } catch (const std::exception &e) {
        return std::string("other: ") + e.what();
    }
    return "";
}

static bool contains(const std::string &text, const char *piece)
{
    return text.find(piece) != std::string::npos;
}

// How many criteria of our own live: a run, a failure or an exception must free each once.
static int living;

static ls::criterion_ptr counted_criterion()
{
    living++;
    return ls::custom_criterion([](auto &o) {
        o.forward = [](lk_value *x, lk_value *, void *) { return x; };
        o.context = &living;
        o.free_context = [](void *count) { --*static_cast<int *>(count); };
    });
}

static ls::dataset_ptr line(int64_t samples)
{
    ls::tensor_ptr x = ls::tensor_create(LK_F32, ls::shape({samples, 1}));
    ls::tensor_ptr y = ls::tensor_create(LK_F32, ls::shape({samples, 1}));
    for (int64_t i = 0; i < samples; i++) {
        double value = static_cast<double>(i) / static_cast<double>(samples) - 0.5;
        lk_tensor_set(x.get(), i, value);
        lk_tensor_set(y.get(), i, 2 * value + 1);
    }
    return ls::tensor_dataset({{"features", std::move(x)}, {"targets", std::move(y)}});
}

static void errors_are_exceptions()
{
    EXPECT(contains(thrown_by([] { ls::linear(0, 1); }), "Linear"));
    EXPECT(contains(thrown_by([] { ls::sgd(); }), "lr is required"));
    EXPECT(contains(thrown_by([] { ls::mnist("/no/such/folder"); }), "/no/such/folder"));
    EXPECT(contains(thrown_by([] { ls::sequential({ls::relu(), ls::linear(1, 0)}); }), "Linear"));
    EXPECT(contains(thrown_by([] { ls::check(lk_fail(LK_ERR_RANGE, "sentence %d", 3)); }), "sentence 3"));
}

static void handles_move()
{
    {
        ls::criterion_ptr first = counted_criterion(), second;
        EXPECT(first && !second && living == 1);
        second = std::move(first);
        EXPECT(!first && second && living == 1);
        second = counted_criterion();
        EXPECT(living == 1);
    }
    EXPECT(living == 0);
    lk_criterion_free(counted_criterion().release());
    EXPECT(living == 0);
}

static void exceptions_free_what_was_handed_over()
{
    ls::runner_ptr runner = ls::supervised_runner();
    std::string text = thrown_by([&] {
        ls::train(runner, [&](auto &o) {
            o.model = ls::sequential({ls::linear(1, 1)});
            o.criterion = counted_criterion();
            o.loaders = ls::loaders({{"train", ls::loader(line(8))}});
            o.callbacks = ls::callbacks({ls::timer_callback(), ls::accuracy_callback()});
            EXPECT(living == 1);
            o.optimizer = ls::sgd([](auto &s) { s.lr = -1; });
        });
    });
    EXPECT(contains(text, "lr"));
    EXPECT(living == 0);
    EXPECT(contains(thrown_by([] {
                        lk_loader_list list = ls::loaders({{"train", ls::loader(line(8))}});
                        (void)list;
                    }),
                    "other: a list is handed over"));
}

static void layers_draw_from_left_to_right()
{
    lk_manual_seed(7);
    ls::module_ptr first = ls::linear(3, 4), second = ls::linear(4, 2);
    lk_manual_seed(7);
    ls::module_ptr both = ls::sequential({ls::linear(3, 4), ls::linear(4, 2)});
    EXPECT(both);
    for (const char *path : {"0.weight", "1.weight"}) {
        lk_tensor *drawn = lk_module_param(both.get(), path)->value;
        lk_tensor *alone = lk_module_param(path[0] == '0' ? first.get() : second.get(), "weight")->value;
        EXPECT(lk_tensor_count(drawn) == lk_tensor_count(alone));
        EXPECT(!std::memcmp(drawn->data, alone->data,
                            sizeof(float) * static_cast<size_t>(lk_tensor_count(alone))));
    }
}

static void a_run_trains_evaluates_and_predicts()
{
    int epochs = 0;
    ls::runner_ptr runner = ls::supervised_runner();
    ls::train(runner, [&](auto &o) {
        o.model = ls::named_sequential({{"line", ls::linear(1, 1)}});
        o.criterion = ls::mse_loss();
        o.optimizer = ls::sgd([](auto &s) { s.lr = 0.5, s.momentum = 0.5; });
        o.scheduler = ls::multi_step_lr([](auto &s) { s.milestones = ls::milestones({30, 40}); });
        o.loaders = ls::loaders({{"train", ls::loader(line(64), [](auto &l) { l.batch_size = 16; })}});
        o.callbacks = ls::callbacks({ls::on(&lk_callback_ops::on_epoch_end, [&](lk_runner &) { epochs++; })});
        o.num_epochs = 50, o.device = "cpu";
    });
    EXPECT(epochs == 50);
    ls::evaluate_loader(runner, ls::loader(line(16)), [](auto &o) { o.criterion = ls::mse_loss(); });
    EXPECT(lk_metrics_get(runner->loader_metrics, "loss") < 1e-4);
    double sum = 0;
    ls::predict_loader(runner, ls::loader(line(16)), [&](const lk_tensor &output, const lk_batch &) {
        sum += static_cast<const float *>(output.data)[0];
    });
    EXPECT(std::fabs(sum - 15) < 0.1);
    EXPECT(thrown_by([&] {
               ls::predict_loader(runner, ls::loader(line(16)), [](const lk_tensor &, const lk_batch &) {
                   throw std::runtime_error("enough");
               });
           }) == "other: enough");
    EXPECT(contains(thrown_by([&] {
                        ls::train(runner, [&](auto &o) {
                            o.loaders = ls::loaders({{"train", ls::loader(line(8))}});
                            o.callbacks =
                                ls::callbacks({ls::on(&lk_callback_ops::on_batch_end, [](lk_runner &) {
                                    throw std::runtime_error("a callback's own words");
                                })});
                            o.criterion = ls::mse_loss(), o.device = "cpu";
                            o.optimizer = ls::sgd([](auto &s) { s.lr = 0.1; });
                        });
                    }),
                    "a callback's own words"));
}

int main()
{
    errors_are_exceptions();
    handles_move();
    exceptions_free_what_was_handed_over();
    layers_draw_from_left_to_right();
    a_run_trains_evaluates_and_predicts();
    std::printf("lockstep.hpp: %d failures\n", failures);
    return failures != 0;
}
