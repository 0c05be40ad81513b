#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include <ff/node.hpp>
#include <ff/parallel_for.hpp>

namespace ff {

/// What a stencil works on: a grid that is read, one that is written, their sizes in elements, and
/// which part is computed.
///
/// Owner:   the program owns both grids.
template <typename T>
class stencilTask {
    struct extent {
        size_t size = 1, start = 0, stop = 0, step = 0;
    };

public:
    stencilTask() = default;
    stencilTask(T* in, size_t size, size_t start, size_t stop, size_t step)
        : in_(in), x_{size, start, stop, step} {}
    stencilTask(T* in, size_t x_size, size_t x_start, size_t x_stop, size_t x_step, size_t y_size,
                size_t y_start, size_t y_stop, size_t y_step)
        : in_(in), x_{x_size, x_start, x_stop, x_step}, y_{y_size, y_start, y_stop, y_step} {}
    stencilTask(T* in, size_t x_size, size_t x_start, size_t x_stop, size_t x_step, size_t y_size,
                size_t y_start, size_t y_stop, size_t y_step, size_t z_size, size_t z_start,
                size_t z_stop, size_t z_step)
        : in_(in),
          x_{x_size, x_start, x_stop, x_step},
          y_{y_size, y_start, y_stop, y_step},
          z_{z_size, z_start, z_stop, z_step} {}

    size_t X_size() const { return x_.size; }
    size_t X_start() const { return x_.start; }
    size_t X_stop() const { return x_.stop; }
    size_t X_step() const { return x_.step; }
    size_t Y_size() const { return y_.size; }
    size_t Y_start() const { return y_.start; }
    size_t Y_stop() const { return y_.stop; }
    size_t Y_step() const { return y_.step; }
    size_t Z_size() const { return z_.size; }
    size_t Z_start() const { return z_.start; }
    size_t Z_stop() const { return z_.stop; }
    size_t Z_step() const { return z_.step; }
    size_t Y_osize() const { return y_out_; }
    size_t size() const { return x_.size * y_.size * z_.size; }
    size_t bytesize() const { return size() * sizeof(T); }

    void setX(size_t start, size_t stop, size_t step) { x_ = {x_.size, start, stop, step}; }
    void setY(size_t start, size_t stop, size_t step) { y_ = {y_.size, start, stop, step}; }
    void setZ(size_t start, size_t stop, size_t step) { z_ = {z_.size, start, stop, step}; }
    void setInTask(T* in, size_t x, size_t y = 1, size_t z = 1) {
        if (in != nullptr) in_ = in;
        x_.size = x;
        y_.size = y;
        z_.size = z;
    }
    void setOutTask(T* out, size_t y) {
        if (out != nullptr) out_ = out;
        y_out_ = y;
    }
    T* getInPtr() const { return in_; }
    T* getOutPtr() const { return out_; }
    void swap() { std::swap(in_, out_); }

private:
    T* in_ = nullptr;
    T* out_ = nullptr;
    extent x_, y_, z_;
    size_t y_out_ = 0;
};

/// Computes each element of a grid from another grid, in parallel by rows, again and again: the
/// grid that was written is read in the next round. A value that all threads reduce says when to
/// end. Alone for one grid, or as a node whose items are stencilTask<T>.
///
/// Threads, failure: as ff_node.
template <typename T>
class stencil2D : public ff_node {
public:
    using parloop_t = ParallelForReduce<T>;
    using init_F_t = std::function<T(size_t, size_t, void*)>;
    using init2_F_t = std::function<void(parloop_t&, T*, size_t, size_t)>;
    using reduce_F_t = std::function<T(long, long, T*, size_t, size_t, T&)>;
    using reduce2_F_t =
        std::function<void(parloop_t&, T*, T*, size_t, size_t, size_t, size_t, size_t, size_t, T&)>;
    using prepost_F_t = std::function<void(T*, size_t, size_t, T&)>;
    using reduceOp_F_t = std::function<void(T&, T)>;
    using iterCond_F_t = std::function<bool(T, size_t)>;

    stencil2D(T* in, T* out, size_t x_size, size_t y_size, size_t y_out_size, int threads, int = 1,
              int = 1, bool = false, size_t rows_at_once = 8)
        : once_(true), threads_(threads), rows_(rows_at_once), loops_(threads) {
        Task.setInTask(in, x_size, y_size);
        Task.setOutTask(out, y_out_size);
        skipfirstpop(true);
    }
    explicit stencil2D(int threads, int = 1, int = 1, bool = false, size_t rows_at_once = 8)
        : once_(false), threads_(threads), rows_(rows_at_once), loops_(threads) {}

    /// Before the first round, of a stencil for one grid: sets each element, or all.
    void initInFunc(init_F_t set, void* extra) { init_in_ = each_row(std::move(set), extra); }
    void initInFuncAll(init2_F_t set) { init_in_ = std::move(set); }
    void initOutFunc(init_F_t set, void* extra) { init_out_ = each_row(std::move(set), extra); }
    void initOutFuncAll(init2_F_t set) { init_out_ = std::move(set); }
    /// Before and after each round, on the grid that is read, and that was written.
    void preFunc(prepost_F_t call) { before_ = std::move(call); }
    void postFunc(prepost_F_t call) { after_ = std::move(call); }
    /// One element, or all, of the part of the grid from start to stop; 0: to its end.
    void computeFunc(reduce_F_t compute, size_t x_start = 0, size_t x_stop = 0, size_t x_step = 1,
                     size_t y_start = 0, size_t y_stop = 0, size_t y_step = 1, size_t = 0,
                     size_t = 0, size_t = 1) {
        set_part(x_start, x_stop, x_step, y_start, y_stop, y_step);
        one_ = std::move(compute);
    }
    void computeFuncAll(reduce2_F_t compute, size_t x_start = 0, size_t x_stop = 0,
                        size_t x_step = 1, size_t y_start = 0, size_t y_stop = 0, size_t y_step = 1,
                        size_t = 0, size_t = 0, size_t = 1) {
        set_part(x_start, x_stop, x_step, y_start, y_stop, y_step);
        all_ = std::move(compute);
    }
    /// Goes on for at most `most_rounds`, as long as `again(value, rounds)`.
    void reduceFunc(iterCond_F_t again, size_t most_rounds, reduceOp_F_t reduce, T identity) {
        again_ = std::move(again);
        most_rounds_ = most_rounds;
        reduce_ = std::move(reduce);
        identity_ = identity;
    }

    void swap() { Task.swap(); }
    size_t getIter() const { return rounds_; }
    const T& getReduceVar() const { return value_; }

    void* svc(void* item) override {
        if (item != nullptr) Task = *static_cast<stencilTask<T>*>(item);
        if (once_ && init_in_) init_in_(loops_, Task.getInPtr(), Task.X_size(), Task.Y_size());
        if (once_ && init_out_) init_out_(loops_, Task.getOutPtr(), Task.X_size(), Task.Y_size());
        T value = identity_;
        rounds_ = 0;
        do {
            if (rounds_ != 0) swap();
            round(value);
        } while (++rounds_ < most_rounds_ && again_ && again_(value, rounds_));
        value_ = value;
        return once_ ? nullptr : item;
    }
    int run_and_wait_end() override {
        if (ff_node::run() < 0) return -1;
        return ff_node::wait();
    }

protected:
    stencilTask<T> Task;

private:
    init2_F_t each_row(init_F_t set, void* extra) {
        return [this, set = std::move(set), extra](parloop_t& loops, T* grid, size_t x, size_t y) {
            loops.parallel_for(
                0, static_cast<long>(x), 1, static_cast<long>(rows_),
                [&](long i) {
                    for (size_t j = 0; j < y; ++j)
                        grid[static_cast<size_t>(i) * x + j] =
                            set(static_cast<size_t>(i), j, extra);
                },
                threads_);
        };
    }
    void set_part(size_t x_start, size_t x_stop, size_t x_step, size_t y_start, size_t y_stop,
                  size_t y_step) {
        Task.setX(x_start, x_stop != 0 ? x_stop : Task.X_size(), x_step);
        Task.setY(y_start, y_stop != 0 ? y_stop : Task.Y_size(), y_step);
    }
    void round(T& value) {
        T* const in = Task.getInPtr();
        T* const out = Task.getOutPtr();
        const size_t x = Task.X_size(), y = Task.Y_size();
        if (before_) before_(in, x, y, value);
        if (one_) {
            loops_.parallel_reduce(
                value, identity_, static_cast<long>(Task.X_start()),
                static_cast<long>(Task.X_stop()), static_cast<long>(Task.X_step()),
                static_cast<long>(rows_),
                [&](long i, T& part) {
                    for (size_t j = Task.Y_start(); j < Task.Y_stop(); j += Task.Y_step())
                        out[static_cast<size_t>(i) * x + j] =
                            one_(i, static_cast<long>(j), in, x, y, part);
                },
                reduce_, threads_);
        } else if (all_) {
            all_(loops_, in, out, x, Task.X_start(), Task.X_stop(), y, Task.Y_start(),
                 Task.Y_stop(), value);
        }
        if (after_) after_(out, x, y, value);
    }

    const bool once_;
    const int threads_;
    const size_t rows_;
    init2_F_t init_in_, init_out_;
    prepost_F_t before_, after_;
    reduce_F_t one_;
    reduce2_F_t all_;
    reduceOp_F_t reduce_ = [](T&, T) {};
    iterCond_F_t again_;
    T identity_{}, value_{};
    size_t rounds_ = 0, most_rounds_ = 1;
    parloop_t loops_;
};

}  // namespace ff
