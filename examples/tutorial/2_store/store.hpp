#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/bulk.hpp>
#include <amalgam/rpc.hpp>

/// Values of any size under names.
///
/// Threads: none of its own and no lock: handlers of an engine are user-level threads of one
///          execution stream, and take turns only where they wait.
class store {
public:
    explicit store(am::engine& where) : where_(where) {}

    /// `from` describes memory of the caller, which holds the value.
    void put(const std::string& name, const am::bulk& from) {
        auto value = std::make_shared<std::vector<std::byte>>(from.pull_all());  // waits
        values_[name] = std::move(value);
    }

    /// Describes memory of this process. A put() meanwhile replaces the value and does not change
    /// it, so a reader has the old one or the new one. Memory is freed when nobody refers to it.
    am::bulk get(const std::string& name) {
        const auto found = values_.find(name);
        if (found == values_.end())
            throw am::error(am::errc::not_found, "there is no value \"" + name + "\"");
        return am::expose_owned(where_, found->second);
    }

    /// Sends all names that begin with `prefix`, one by one.
    void names(am::stream_writer<std::string>& out, const std::string& prefix) {
        std::string last;  // out() may wait, and put() run meanwhile: no iterator is held over it
        for (auto next = values_.lower_bound(prefix); next != values_.end();
             next = values_.upper_bound(last)) {
            last = next->first;
            if (!last.starts_with(prefix)) break;
            out(last);
        }
    }

private:
    am::engine& where_;
    std::map<std::string, std::shared_ptr<const std::vector<std::byte>>> values_;
};
