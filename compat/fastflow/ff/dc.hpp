#pragma once

#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include <ff/ff.hpp>
#include <ff/mapping_utils.hpp>
#include <ff/task_internals.hpp>

namespace ff {

namespace detail {

/// The parts of one problem: operands and results, without their types.
struct split_problem {
    virtual ~split_problem() = default;
    virtual size_t size() const = 0;
    virtual const void* operand(size_t which) const = 0;
    virtual void* result(size_t which) = 0;
    virtual void combine(void* result) = 0;
};
struct dc_functions {
    virtual ~dc_functions() = default;
    virtual bool is_base(const void* operand) const = 0;
    virtual void solve(const void* operand, void* result) const = 0;
    virtual std::unique_ptr<split_problem> split(const void* operand) const = 0;
};

/// Threads that solve problems, one after the other. The caller is the first of them.
/// Failure: solve() returns -1, with a sentence on stderr, if an exception came out of a function.
class dc_team {
public:
    explicit dc_team(ssize_t threads);
    ~dc_team();
    dc_team(const dc_team&) = delete;
    dc_team& operator=(const dc_team&) = delete;
    int solve(const dc_functions& how, const void* operand, void* result);
    void resize(ssize_t threads);

private:
    struct state;
    std::unique_ptr<state> state_;
};

}  // namespace detail

/// Divide and conquer: a problem is divided until it is a base case, those are solved in parallel,
/// and their results combined. Alone for one problem, or as a node: then an item is both operand
/// and result, unless setTaskIn(), setTaskOut() and releaseTask() say otherwise.
///
/// Owner:   the program owns operand and result; functions are copied.
/// Threads, failure: as ff_node.
template <typename In, typename Out = In, typename Operand = In, typename Result = Out,
          typename Compare = CompareTask_Par>
class ff_DC : public ff_node_t<In, Out> {
    using divide_f_t = std::function<void(const Operand&, std::vector<Operand>&)>;
    using combine_f_t = std::function<void(std::vector<Result>&, Result&)>;
    using seq_f_t = std::function<void(const Operand&, Result&)>;
    using cond_f_t = std::function<bool(const Operand&)>;

public:
    enum { DEFAULT_OUTSTANDING_TASKS = 2048 };

    ff_DC(divide_f_t divide, combine_f_t combine, seq_f_t solve, cond_f_t is_base,
          const Operand& operand, Result& result, int workers,
          size_t outstanding = DEFAULT_OUTSTANDING_TASKS, int = 0,
          void (*)(unsigned long) = nullptr)
        : ff_DC(std::move(divide), std::move(combine), std::move(solve), std::move(is_base),
                workers, outstanding) {
        operand_ = std::make_shared<Operand>(operand);
        result_ = &result;
    }
    ff_DC(divide_f_t divide, combine_f_t combine, seq_f_t solve, cond_f_t is_base, int workers,
          size_t = DEFAULT_OUTSTANDING_TASKS, int = 0, void (*)(unsigned long) = nullptr)
        : how_(std::make_shared<functions>(std::move(divide), std::move(combine), std::move(solve),
                                           std::move(is_base))),
          team_(std::make_shared<detail::dc_team>(workers)) {}

    void setNumWorkers(ssize_t workers) { team_->resize(workers); }
    int run(bool = false) override { return ff_node::run(true); }
    int wait() override { return ff_node::wait(); }
    int run_and_wait_end() override {
        return operand_ != nullptr ? team_->solve(*how_, operand_.get(), result_) : -1;
    }
    int run_then_freeze(ssize_t = -1) override { return run_and_wait_end(); }
    int wait_freezing() override { return 0; }

protected:
    virtual Operand* setTaskIn(In* item) { return (Operand*)item; }
    virtual Result* setTaskOut(In* item) { return (Result*)item; }
    virtual Out* releaseTask(Result* result) { return (Out*)result; }

    Out* svc(In* item) override {
        Operand* const operand = setTaskIn(item);
        Result* const result = setTaskOut(item);
        if (team_->solve(*how_, operand, result) != 0) return this->EOS;
        return releaseTask(result);
    }

private:
    struct functions final : detail::dc_functions {
        functions(divide_f_t d, combine_f_t c, seq_f_t s, cond_f_t b)
            : divide(std::move(d)), combine(std::move(c)), seq(std::move(s)), cond(std::move(b)) {}
        bool is_base(const void* operand) const override {
            return cond(*static_cast<const Operand*>(operand));
        }
        void solve(const void* operand, void* result) const override {
            seq(*static_cast<const Operand*>(operand), *static_cast<Result*>(result));
        }
        std::unique_ptr<detail::split_problem> split(const void* operand) const override {
            return std::make_unique<parts>(*this, *static_cast<const Operand*>(operand));
        }
        divide_f_t divide;
        combine_f_t combine;
        seq_f_t seq;
        cond_f_t cond;
    };
    struct parts final : detail::split_problem {
        parts(const functions& the_functions, const Operand& operand) : how(the_functions) {
            how.divide(operand, operands);
            results.resize(operands.size());
        }
        size_t size() const override { return operands.size(); }
        const void* operand(size_t which) const override { return &operands[which]; }
        void* result(size_t which) override { return &results[which]; }
        void combine(void* result) override { how.combine(results, *static_cast<Result*>(result)); }
        const functions& how;
        std::vector<Operand> operands;
        std::vector<Result> results;
    };

    std::shared_ptr<functions> how_;
    std::shared_ptr<detail::dc_team> team_;
    std::shared_ptr<Operand> operand_;
    Result* result_ = nullptr;
};

}  // namespace ff
