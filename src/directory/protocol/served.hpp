#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "directory/protocol/gate.hpp"

namespace amalgam::detail {

/// Member functions served on an engine, for peers authenticated by its gate.
///
/// Owner:   the handlers share the object until end().
/// Threads: one at a time.
class served_members {
public:
    served_members(engine& on, std::shared_ptr<gate> lets_in)
        : on_(on), gate_(std::move(lets_in)) {}

    template <typename Object, typename R, typename... A>
    void serve(std::shared_ptr<Object> object, std::string_view name, R (Object::*what)(A...),
               handler run) {
        on_.define(library_name{name},
                   [object = std::move(object), lets_in = gate_, what](A... arguments) -> R {
                       lets_in->check_caller();
                       return ((*object).*what)(std::move(arguments)...);
                   },
                   {.run = run});
        names_.push_back({name});
    }
    /// Stops serving; running calls complete on their own. Where the caller cannot wait, calls may
    /// still arrive for a while: gate::end() refuses them.
    void end() noexcept { end_serving(on_.core(), names_); }

private:
    engine& on_;
    const std::shared_ptr<gate> gate_;
    std::vector<served_name> names_;  // String literals.
};

}  // namespace amalgam::detail
