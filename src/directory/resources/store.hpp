#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/resource_id.hpp>

#include "directory/limits.hpp"
#include "directory/resources/posting_lists.hpp"

namespace amalgam::detail {

class store_search;

/// The resources of one directory server, in memory, found by id or by attributes.
///
/// Every resource is in one list per attribute, shared with all others of the same name and value;
/// in its context's list; and in the list of all. A search walks the shortest list that its query
/// names and compares the other attributes.
/// Threads: one at a time.
/// Failure: throws error{no_memory}, and then has changed nothing.
/// Cost:    find(): two table lookups. add(), remove(): a hash and a link per attribute. Only
///          searches walk lists.
class resource_store {
public:
    resource_store();
    resource_store(const resource_store&) = delete;
    resource_store& operator=(const resource_store&) = delete;

    /// New ids may come from this range, too. Precondition: range < limits::id_ranges.
    void own_range(std::uint32_t range);
    /// No new ids come from this range. Existing ones stay. Does nothing if the range is not owned.
    void retire_range(std::uint32_t range);
    bool owns(resource_id id) const noexcept { return slot_of(id) != no_slot; }
    /// Ids that are free now.
    std::size_t free_ids() const noexcept { return unused_ + freed_; }

    /// Registers a resource of `context` and returns its id; `none` if no id is free. `context` is
    /// `none` for a context, which belongs to itself. If `wanted` is not none, the resource gets
    /// that id, which must be free and either from a retired range or used before; otherwise
    /// returns none. Precondition: no attribute of `what` is open.
    resource_id add(resource_id context, attribute_view what,
                    resource_id wanted = resource_id::none);
    /// False if there is no such id.
    bool remove(resource_id id) noexcept;
    /// Replaces the attributes of that resource, which must exist. It keeps its place in the lists
    /// of attributes that stay.
    void change(resource_id id, attribute_view what);

    struct found {
        resource_id id = resource_id::none;
        resource_id context = resource_id::none;
        attribute_view what;  ///< Valid until it is removed.

        /// Whether it has all non-open attributes of `query`.
        bool fits(const attribute_view& query) const noexcept;
    };
    /// `id` is none if there is no such resource.
    found find(resource_id id) const noexcept;
    /// The first registered resource that has all non-open attributes of `query`.
    found find_first(const attribute_view& query) const noexcept {
        std::size_t looks = ~std::size_t{0};
        return find_first(query, looks);
    }
    /// The same, but examines at most `looks` resources and counts them down. None with 0 left
    /// means undecided.
    found find_first(const attribute_view& query, std::size_t& looks) const noexcept;
    /// Some resource of that context; `none` if it has no more.
    resource_id first_of(resource_id context) const noexcept;

    /// Equal for equal names with equal values, within this store.
    std::uint64_t key_of(const attribute& one) const noexcept;
    /// key_of() of an attribute that all answers to `query` have; key_of_all if it names none.
    std::uint64_t key_in_all(const attribute_view& query) const noexcept;
    static constexpr std::uint64_t key_of_all = 1;

    std::size_t size() const noexcept { return size_; }

private:
    friend class store_search;

    static constexpr std::uint32_t no_slot = ~0u;
    struct record {
        std::unique_ptr<std::uint64_t[]> memory;  // Empty: the id is free.
        attribute_view what;
        resource_id context = resource_id::none;
        std::uint32_t places = posting_lists::none;  // The first of its places in the lists.
        std::uint32_t freed_after = no_slot;         // While it is free.
    };
    std::uint32_t slot_of(resource_id id) const noexcept;
    resource_id id_of(std::uint32_t slot) const noexcept;
    found found_at(std::uint32_t slot) const noexcept;
    bool is_retired(std::uint32_t slot) const noexcept {
        return retired_[slot / limits::ids_per_range];
    }
    void skip_retired() noexcept;
    void put_with_freed(std::uint32_t slot) noexcept;
    void take_from_freed(std::uint32_t slot) noexcept;
    std::uint32_t free_slot(resource_id wanted) const noexcept;
    void put_into_lists(std::uint32_t slot);
    static std::unique_ptr<std::uint64_t[]> copy_of(const attribute_view& what);

    std::uint64_t key_of_context(resource_id context) const noexcept;
    /// Key of the shortest list that contains all answers.
    std::uint64_t shortest(const attribute_view& query) const noexcept;

    const std::uint64_t seed_;                // Prevents callers from choosing colliding keys.
    std::vector<std::uint32_t> owned_;        // Ranges, in slot order.
    std::vector<bool> retired_;               // Parallel to owned_.
    std::vector<std::uint16_t> range_order_;  // By range: its index in owned_ plus 1; 0 if not
                                              // owned.
    std::vector<record> records_;             // By slot.
    std::uint32_t first_freed_ = no_slot;     // The earliest.
    std::uint32_t last_freed_ = no_slot;
    std::uint32_t fresh_ = 1;  // First slot never used; 0 is not an id.
    posting_lists lists_;
    std::size_t size_ = 0;
    std::size_t freed_ = 0;
    std::size_t unused_ = 0;  // From `fresh_` on.
};

/// A query with many answers, while resources come and go. A resource that matches throughout is
/// found exactly once, in order of registration. One that comes or goes meanwhile is found at most
/// once.
///
/// Owner:   borrows the store; owns a copy of the query.
/// Threads: the store's.
class store_search {
public:
    store_search(resource_store& in, attribute_view query);
    store_search(const store_search&) = delete;
    store_search& operator=(const store_search&) = delete;
    ~store_search();

    /// The next answer, examining at most `looks` resources. `over`: none left now.
    enum class outcome : std::uint8_t { found, unfinished, over };
    outcome next(resource_store::found& into, std::size_t looks) noexcept;

    const attribute_list& query() const noexcept { return query_; }

private:
    resource_store& store_;
    attribute_list query_;
    std::uint32_t mark_;  // Position in the list being walked: after what was examined.
};

}  // namespace amalgam::detail
