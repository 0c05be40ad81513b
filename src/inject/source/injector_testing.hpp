#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/inject/injection_target.hpp>
#include <amalgam/inject/injector.hpp>

#include "inject/image/compiled_image.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam {

using namespace std::chrono_literals;

/// For things without notification, such as counters and the ends of processes: waits until it is
/// so. If that never happens, the test's watchdog ends the wait.
template <typename Done>
void poll_until(Done done) {
    while (!done())
        std::this_thread::sleep_for(5ms);
}

/// Prepended to each source of compiled().
inline const std::string head = R"(
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>
extern "C" int amalgam_inject_result(const void* data, std::size_t bytes);
extern "C" int amalgam_inject_payload_size(std::size_t bytes);
#define MAIN(NAME) extern "C" void NAME##_main(void* payload, std::size_t size, void* target)
)";

inline code_image compiled(const std::string& name, const std::string& source,
                           std::size_t alignment = 8) {
    return compiled_image(head + source,
                          {.path = ".cpp", .name = name, .payload_alignment = alignment});
}

/// An image of a function marked by AMALGAM_INJECT.
inline code_image compiled_cpp(const std::string& name, const std::string& source) {
    return compiled_image(
        "#include <amalgam/inject/injected.hpp>\n" + source + "\nAMALGAM_INJECT(" + name + ")\n",
        {.path = ".cpp", .name = name, .flags = {"-I" AMALGAM_INCLUDE_FOLDER}});
}

/// Adds up its payloads, and returns the sum.
inline const code_image& adder() {
    static const code_image image = compiled("adder", R"(
extern "C" std::size_t adder_payload_get_max_size(void*, std::size_t bytes) { return 2 * bytes; }
extern "C" int adder_payload_init(void* payload, std::size_t, void* args, std::size_t bytes) {
    std::memcpy(payload, args, bytes);
    std::memcpy(static_cast<char*>(payload) + bytes, args, bytes);
    return bytes == 0;
}
MAIN(adder) {
    long& sum = *static_cast<long*>(target);
    for (std::size_t i = 0; i < size; ++i) sum += static_cast<unsigned char*>(payload)[i];
    const std::string text = std::to_string(sum);
    amalgam_inject_result(text.data(), text.size());
}
)");
    return image;
}

inline std::string_view name_of(errc code) {
    return name(code);
}

inline std::string text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A source and a target over shared memory.
class injector_test : public testing::Test {
protected:
    injection_options open_to_all(injection_options options = {}) {
        options.allows.unsigned_too = true;
        options.target_args = &sum;
        return options;
    }
    void wait_for_sum(long expected) {
        poll_until([&] { return sum_now() == expected; });
    }
    long sum_now() { return std::atomic_ref(sum).load(); }
    /// Calls being served by the target.
    std::uint64_t running() {
        for (const counter_value& each : at_target.counters().snapshot())
            if (each.name == "rpc.running") return each.value;
        ADD_FAILURE() << "there is no such counter";
        return 0;
    }
    std::uint64_t linked() { return at_target.counters().get("inject.linked").value(); }

    alignas(8) long sum = 0;
    engine at_target{"shm://", {.name = "target"}};
    engine at_source{"shm://", {.name = "source"}};
    injector inject{at_source};
    peer there = at_source.lookup(at_target.address());
};

inline const std::string ones("\1\1\1", 3);

}  // namespace amalgam
