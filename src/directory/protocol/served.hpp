#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "directory/protocol/role_policy.hpp"

namespace amalgam::detail {

/// Member functions served on an engine, to whom its role_policy lets in.
///
/// Owner:   the handlers share the object until end().
/// Threads: one at a time.
class served_members {
public:
    served_members(engine& on, std::shared_ptr<const role_policy> lets_in)
        : on_(on), lets_in_(std::move(lets_in)) {}

    /// Only for callers with that role. Others get `denied` from rpc, which counts them.
    template <typename Object, typename R, typename... A>
    void serve(std::shared_ptr<Object> object, std::string_view name, R (Object::*what)(A...),
               handler run, directory_role to) {
        on_.define(library_name{name},
                   [object = std::move(object), lets_in = lets_in_, what](A... arguments) -> R {
                       lets_in->check_open();
                       return ((*object).*what)(std::move(arguments)...);
                   },
                   {.run = run, .allow = lets_in_->list_of(to)});
        names_.push_back({name});
    }
    /// Stops serving; running calls complete on their own. Where the caller cannot wait, calls may
    /// still arrive for a while: role_policy::end() refuses them.
    void end() noexcept { end_serving(on_.core(), names_); }

private:
    engine& on_;
    const std::shared_ptr<const role_policy> lets_in_;
    std::vector<served_name> names_;  // String literals.
};

}  // namespace amalgam::detail
