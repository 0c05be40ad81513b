// The same loop and the same graph of tasks on FastFlow: `bench_fastflow_parallel parallel-for`.
#include "fastflow/parallel.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;
using bench::length;

auto milliseconds(const length& how_long) {
    return [&](auto run) { return how_long.nanoseconds_each(1, run) / 1e6; };
}

constexpr bench::question questions[] = {
    {"parallel-for",
     [](const length& how_long) { return bench::fastflow_loop(milliseconds(how_long)); }},
    {"cholesky",
     [](const length& how_long) { return bench::fastflow_cholesky(milliseconds(how_long)); }},
};

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_one(argc, argv, questions);
}
