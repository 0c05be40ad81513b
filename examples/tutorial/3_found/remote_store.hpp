#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/bulk.hpp>
#include <amalgam/directory.hpp>
#include <amalgam/rpc.hpp>

/// A store that the directory knows, wherever it is.
///
/// Threads: any; several calls at once.
/// Failure: the constructor throws error{not_found} where the directory has no such store; all
///          members throw what calls throw.
class remote_store {
    template <typename Signature>
    auto call(std::string_view procedure) {
        return here_.where().procedure<Signature>(procedure).on(there_, provider_);
    }

public:
    explicit remote_store(const std::string& which) {
        am::attribute_list wanted{{"type", "kv"}, {"store", which}};
        wanted.ask("provider");
        const auto found = here_.find(wanted);
        if (!found)
            throw am::error(am::errc::not_found, "the directory knows no store \"" + which +
                                                     "\", expected a kv_server that runs");
        there_ = here_.lookup(*found);
        provider_ = found->what.number<std::uint16_t>("provider").value_or(0);
    }

    void put(const std::string& name, const std::vector<char>& value) {
        const am::exposed shown = am::expose(here_.where(), value);
        call<void(std::string, am::bulk)>("kv.put")(name, shown);
    }
    std::vector<char> get(const std::string& name) {
        return call<am::bulk(std::string)>("kv.get")(name).pull_all<char>();
    }
    am::streamed<std::string> names(const std::string& prefix) {
        return call<am::streamed<std::string>(std::string)>("kv.names")(prefix);
    }

private:
    am::context here_;  // an engine of its own, and a place in the directory
    am::peer there_;
    std::uint16_t provider_ = 0;
};
