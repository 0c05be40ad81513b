// Cost of an encoding for a whole call through shared memory. Both ends run in one thread, so that
// count_instructions sees all of it and nothing else.
//   encodings call-native|call-xdr [SECONDS|OPERATIONSx]    ns for a call with ten_fields
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/rpc/engine.hpp>

#include "questions.hpp"

namespace {

using namespace amalgam;

/// The struct of docs/design/rpc.md, "What an encoding costs".
struct ten_fields {
    std::int32_t a = -1, b = 2;
    std::uint64_t c = 3;
    double d = 4.5, e = -5.5;
    float f = 6.5f;
    std::uint16_t g = 7;
    std::uint8_t h = 8;
    bool i = true;
    std::string j = "ten";

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(a, b, c, d, e, f, g, h, i, j);
    }
};

/// Drives both ends in turn in this thread. Several calls are in flight, so that empty polls weigh
/// little.
double call(encoding how, const bench::length& how_long) {
    constexpr std::size_t in_flight = 20;
    constexpr std::size_t calls = 1000;
    const progress_options by_us{.by = progress_by::caller};
    engine server("shm://", {.progress = by_us});
    engine client("shm://", {.progress = by_us, .encoding = how});
    server.define("take", [](const ten_fields& got) { return got.a + got.b; });
    const auto take =
        client.procedure<std::int32_t(const ten_fields&)>("take").on(server.address());
    const ten_fields given;
    return how_long.nanoseconds_each(calls, [&] {
        std::vector<future<void>> callers;
        for (std::size_t i = 0; i < in_flight; ++i) {
            callers.push_back(client.spawn([&] {
                for (std::size_t j = 0; j < calls / in_flight; ++j)
                    (void)take(given);
            }));
        }
        for (future<void>& caller : callers) {
            while (!caller.ready()) {
                client.progress();
                server.progress();
            }
            caller.get();
        }
    });
}

double call_native(const bench::length& how_long) {
    return call(encoding::native, how_long);
}

double call_xdr(const bench::length& how_long) {
    return call(encoding::xdr, how_long);
}

}  // namespace

int main(int argc, char** argv) {
    constexpr std::array<bench::question, 2> known{
        {{"call-native", &call_native}, {"call-xdr", &call_xdr}}};
    return bench::answer_one(argc, argv, known);
}
