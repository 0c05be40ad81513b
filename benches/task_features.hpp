#pragma once

#include <cstddef>
#include <span>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/ult.hpp>

#include "questions.hpp"

namespace amalgam::bench {

inline constexpr std::size_t batch = 1000;

/// Per turn of both ULTs on `stream`, a driven one: one runs `other` all the time, one `loop` to be
/// counted. `last`: ends the last wait of `other`.
template <typename Other, typename Loop, typename Last>
double beside_on(execution_stream& stream, const length& how_long, Other other, Loop loop,
                 Last last) {
    double each = 0;
    bool over = false;
    ult partner, mine;
    partner = spawn(stream, [&] {
        while (!over)
            other(mine);
    });
    mine = spawn(stream, [&] {
        each = how_long.nanoseconds_each(batch, [&] {
            for (std::size_t i = 0; i < batch; ++i)
                loop(partner);
        });
        over = true;
        last(partner);
    });
    while (stream.run_ready() != 0)
        continue;
    partner.join();
    mine.join();
    return each;
}

template <typename Other, typename Loop, typename Last>
double beside(const length& how_long, Other other, Loop loop, Last last) {
    execution_stream stream({.driven = true});
    return beside_on(stream, how_long, other, loop, last);
}

template <typename Other, typename Loop>
double beside(const length& how_long, Other other, Loop loop) {
    return beside(how_long, other, loop, [](ult& partner) { partner.resume(); });
}

/// Per turn of one ULT on a driven stream.
template <typename Loop>
double alone(const length& how_long, Loop loop) {
    execution_stream stream({.driven = true});
    double each = 0;
    ult mine = spawn(stream, [&] {
        each = how_long.nanoseconds_each(batch, [&] {
            for (std::size_t i = 0; i < batch; ++i)
                loop(stream);
        });
    });
    while (stream.run_ready() != 0)
        continue;
    mine.join();
    return each;
}

/// Per turn of a plain thread.
template <typename Loop>
double on_thread(const length& how_long, Loop loop) {
    return how_long.nanoseconds_each(batch, [&] {
        for (std::size_t i = 0; i < batch; ++i)
            loop();
    });
}

std::span<const question> questions_of_waits() noexcept;    ///< Mutexes, barriers, futures …
std::span<const question> questions_of_streams() noexcept;  ///< And of pools and schedulers.

}  // namespace amalgam::bench
