#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/directory/found_resource.hpp>
#include <amalgam/directory/resource_id.hpp>
#include <amalgam/directory/resource_watch.hpp>

#include "directory/resources/store.hpp"

namespace amalgam::detail {

/// A directory server's answer: the query's open attributes that the resource has, nothing else.
struct found_values {
    resource_id id = resource_id::none;  ///< none: no such resource.
    resource_id context = resource_id::none;
    attribute_list values;
};

inline bool is_same(const found_values& one, const found_values& other) noexcept {
    const const_bytes a = one.values.bytes(), b = other.values.bytes();
    return one.id == other.id && one.context == other.context &&
           std::equal(a.begin(), a.end(), b.begin(), b.end());
}

/// The id as shown to people.
inline std::uint32_t number(resource_id id) noexcept {
    return static_cast<std::uint32_t>(id);
}

/// The whole query with its open attributes filled in.
inline found_resource filled(attribute_list query, const found_values& by) {
    query.fill_from(by.values);
    return {by.id, by.context, std::move(query)};
}

/// A change that a context watches for.
struct watched_change {
    resource_id watcher = resource_id::none;  ///< The context.
    std::uint32_t watch = 0;
    resource_change::kind what = resource_change::kind::ended;
    found_values which;
};

/// The contexts of one directory server with their resources, searches and watches. Stores them and
/// enforces limits. Knows everybody only by id.
///
/// Threads: one at a time.
/// Failure: throws error{invalid}, {not_found}, {denied}; {overloaded} at a limit; {no_memory}.
///          Then nothing has changed.
/// Cost:    as the store's. If there are watches, a change looks them up once per attribute.
class registry {
public:
    /// `tell` is called for each watched change, in order; it must not call the registry.
    registry(const directory_limits& limits, std::function<void(watched_change&&)> tell);
    registry(const registry&) = delete;
    registry& operator=(const registry&) = delete;
    ~registry();

    void own_range(std::uint32_t range) { store_.own_range(range); }
    void retire_range(std::uint32_t range) { store_.retire_range(range); }
    std::size_t free_ids() const noexcept { return store_.free_ids(); }

    /// Adds a context, which is a resource, too. Gets the id `wanted` unless that is none; see
    /// resource_store::add().
    resource_id open(const attribute_view& what, resource_id wanted = resource_id::none);
    /// Removes a context and everything it owns. False if there is no such context.
    bool close(resource_id context);
    /// Adds another server, which only watches. It is not a resource; its number is not a valid id.
    resource_id open_watcher();
    std::size_t contexts() const noexcept { return clients_.size() - remote_watchers_; }
    std::size_t resources() const noexcept { return store_.size(); }
    bool has(resource_id id) const noexcept { return store_.find(id).id != resource_id::none; }

    resource_id add(resource_id context, const attribute_view& what,
                    resource_id wanted = resource_id::none);
    void remove(resource_id context, resource_id id);
    /// Sets these attributes.
    void set(resource_id context, resource_id id, const attribute_view& changes);

    /// A resource that has all non-open attributes of `query`: `id`, or if that is none, the first
    /// registered. Open attributes whose names begin with "context." are filled from its context.
    found_values find(resource_id id, const attribute_view& query) const;
    /// The same by attributes only, examining at most `looks` resources.
    store_search::outcome find_first(const attribute_view& query, std::size_t looks,
                                     found_values& into) const;

    /// Starts a query with many answers.
    std::uint32_t start_search(resource_id context, const attribute_view& query);
    /// The next answer, examining at most `looks` resources.
    store_search::outcome next(resource_id context, std::uint32_t search, std::size_t looks,
                               found_values& into);
    /// The query of a search.
    attribute_view query_of(resource_id context, std::uint32_t search);
    void stop_search(resource_id context, std::uint32_t search);

    /// A search that belongs to no context. Must be destroyed before the registry.
    std::unique_ptr<store_search> make_search(const attribute_view& query);
    store_search::outcome next(store_search& search, std::size_t looks, found_values& into) const;

    /// Notifies the context of each matching resource: first of existing ones, then of changes. The
    /// context chooses the number, so that it knows it before the first notification.
    void watch(resource_id context, std::uint32_t number, const attribute_view& query);
    void unwatch(resource_id context, std::uint32_t watch);
    void unwatch_all(resource_id context);

private:
    struct watcher {
        resource_id context;
        std::uint32_t number;
        std::uint64_t key;
        attribute_list query;
    };
    struct client {
        std::size_t resources = 0;
        std::size_t bytes = 0;       // Of their attributes, and of its queries and watches.
        std::uint32_t searched = 0;  // The latest search number.
        std::unordered_map<std::uint32_t, std::unique_ptr<store_search>> searches;
        std::unordered_map<std::uint32_t, std::unique_ptr<watcher>> watches;
    };

    static constexpr std::uint32_t remote_mark = 1u << 31;  // No id is this large.
    static bool is_remote_watcher(resource_id context) noexcept {
        return (static_cast<std::uint32_t>(context) & remote_mark) != 0;
    }

    client& client_of(resource_id context);
    void check_room(const client& whose, const attribute_view& what) const;
    found_values answer(const resource_store::found& which, const attribute_view& query) const;
    store_search& search_of(resource_id context, std::uint32_t search);
    resource_store::found own(resource_id context, resource_id id) const;
    void tell_watchers(const resource_store::found& which, resource_change::kind what);
    /// `before`: its previous attributes, if it changed.
    void tell_those_at(std::uint64_t key, const resource_store::found& which,
                       resource_change::kind what, const attribute_view* before = nullptr);
    void forget(client& whose, std::uint32_t watch);

    const directory_limits limits_;
    std::function<void(watched_change&&)> tell_;
    resource_store store_;
    std::unordered_map<resource_id, client> clients_;
    std::size_t remote_watchers_ = 0;
    std::uint32_t last_remote_watcher_ = 0;
    std::unordered_multimap<std::uint64_t, watcher*> watchers_;  // By an attribute they name.
};

}  // namespace amalgam::detail
