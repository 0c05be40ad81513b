#pragma once

#include <amalgam/rpc/engine.hpp>

/// Calls by a program whose classes have no RTTI.
namespace amalgam {

/// What no other source calls for, so that the classes of these calls are made without RTTI only.
struct untyped_result {
    int value = 0;

    template <typename Archive>
    void serialize(Archive& a) {
        a(value);
    }
};

future<untyped_result> start_untyped(engine& here, const peer& there, const char* procedure);
/// Waits for the answer.
untyped_result call_untyped(engine& here, const peer& there, const char* procedure);

}  // namespace amalgam
