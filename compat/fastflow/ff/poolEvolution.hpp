#pragma once

#include <cstddef>
#include <vector>

#include <ff/node.hpp>
#include <ff/parallel_for.hpp>

namespace ff {

/// A population that evolves: until `termination(population, env)` holds, `selection` chooses a
/// part of it, `evolution` changes each of those in parallel, and `filter` makes the next
/// population of them. Alone for one population, or as a node whose items are populations.
///
/// Owner:   the program owns the population.
/// Threads, failure: as ff_node.
template <typename T, typename Env = char>
class poolEvolution : public ff_node {
public:
    using selection_t = void (*)(ParallelForReduce<T>&, std::vector<T>&, std::vector<T>&, Env&);
    using evolution_t = const T& (*)(T&, const Env&, const int);
    using filtering_t = void (*)(ParallelForReduce<T>&, std::vector<T>&, std::vector<T>&, Env&);
    using termination_t = bool (*)(const std::vector<T>&, Env&);
    using envT = Env;

    poolEvolution(size_t threads, std::vector<T>& population, selection_t selection,
                  evolution_t evolution, filtering_t filter, termination_t termination,
                  const Env& env = Env(), bool = true)
        : poolEvolution(threads, selection, evolution, filter, termination, env) {
        population_ = &population;
    }
    poolEvolution(size_t threads, selection_t selection, evolution_t evolution, filtering_t filter,
                  termination_t termination, const Env& env = Env(), bool = true)
        : threads_(threads),
          evolving_(threads),
          env_(env),
          selection_(selection),
          evolution_(evolution),
          filter_(filter),
          termination_(termination),
          loops_(static_cast<long>(threads)) {}

    const std::vector<T>& get_result() const { return *population_; }
    const Env& getEnv() const { return env_; }
    /// Threads that take part in the evolution: at most as many as there are.
    void setParEvolution(size_t threads) {
        if (threads > threads_) {
            error("setParEvolution: %zu threads, expected at most the %zu of the constructor\n",
                  threads, threads_);
        } else {
            evolving_ = threads;
        }
    }
    int run_and_wait_end() override {
        if (ff_node::run() < 0) return -1;
        return ff_node::wait();
    }

protected:
    void* svc(void* item) override {
        if (item != nullptr) population_ = static_cast<std::vector<T>*>(item);
        while (population_ != nullptr && !termination_(*population_, env_)) {
            chosen_.clear();
            selection_(loops_, *population_, chosen_, env_);
            loops_.parallel_for_thid(
                0, static_cast<long>(chosen_.size()), 1, 0,
                [&](long i, int thread) {
                    T& one = chosen_[static_cast<size_t>(i)];
                    one = evolution_(one, env_, thread);
                },
                static_cast<long>(evolving_));
            filter_(loops_, *population_, chosen_, env_);
            population_->swap(chosen_);
        }
        return item != nullptr ? population_ : nullptr;
    }

private:
    size_t threads_, evolving_;
    Env env_;
    std::vector<T>* population_ = nullptr;
    std::vector<T> chosen_;
    selection_t selection_;
    evolution_t evolution_;
    filtering_t filter_;
    termination_t termination_;
    ParallelForReduce<T> loops_;
};

}  // namespace ff
