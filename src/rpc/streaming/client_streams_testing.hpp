#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/client_stream.hpp>
#include <amalgam/rpc/stream_reader.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/core/core.hpp"
#include "rpc/loop_pair.hpp"

/// Handlers of streams of values, and what must be left of a stream once it is over.
namespace amalgam {

using namespace std::literals;

using sum_of = int(streaming<int>, int);
using lengths = std::vector<std::size_t>(streaming<std::string>, std::uint32_t);
using echo = streamed<std::string>(streaming<std::string>);

inline int add_up(stream_reader<int>& in, int start) {
    for (int each : in)
        start += each;
    return start;
}

inline void echo_all(stream_reader<std::string>& in, stream_writer<std::string>& out) {
    for (const std::string& each : in)
        out(each);
}

/// Nothing is left at either end.
inline void expect_quiet(engine& server, engine& client) {
    for (engine* each : {&server, &client}) {
        EXPECT_EQ(each->core().server().running(), 0u);
        EXPECT_EQ(each->core().loans().size().value(), 0u);
        EXPECT_EQ(each->core().transfers().pending(), 0u);
        EXPECT_EQ(each->core().value_streams().reserved(), 0u);
        EXPECT_EQ(each->core().value_streams().open(), 0u);
    }
}

/// Of a stream from `client` to a handler of `server`.
inline void expect_nothing_left(engine& client, engine& server) {
    EXPECT_EQ(server.core().server().running(), 0u);
    EXPECT_EQ(client.core().server().running(), 0u);
    EXPECT_EQ(client.core().loans().size().value(), 0u);
    EXPECT_EQ(server.core().value_streams().reserved(), 0u);
    EXPECT_EQ(client.core().value_streams().open(), 0u);
}

/// How the handler's next() ended, and whether it has.
struct reading {
    explicit reading(engine& server) {
        server.define("slow", [this](stream_reader<int>& in) {
            try {
                while (in.next()) {
                    ++values;
                    this_task::sleep_for(10ms);
                }
            } catch (const error& why) {
                seen = why.code().code;
                throw;
            }
            return values;
        });
    }
    int values = 0;
    errc seen = errc::ok;
};

}  // namespace amalgam
