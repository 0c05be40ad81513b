#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/resource_id.hpp>

#include "directory/posting_lists.hpp"

namespace amalgam::detail {

class store_search;

/// The resources of one directory server, in memory, found by id, or by what they are.
///
/// Every resource stands in one list for each of its attributes, with all others that have the same
/// name and value; in one of its context's; and in one of all. A search walks the shortest list
/// that its query names and compares the rest.
/// Threads: one at a time.
/// Failure: throws error{no_memory}, and then has changed nothing.
/// Cost:    find() a look at two tables. add(), remove() a hash and a link per attribute. No list
///          is walked but by searches.
class resource_store {
public:
    static constexpr std::uint32_t ids_per_range = 1u << 16;
    static constexpr std::uint32_t ranges = 1u << 15;  ///< 0 to that: an id is positive as an int.

    resource_store();
    resource_store(const resource_store&) = delete;
    resource_store& operator=(const resource_store&) = delete;

    /// From now on ids may come from this range, too. Precondition: range < ranges.
    void own_range(std::uint32_t range);
    /// From now on no new ids come from it. Those that it gave out stay. Nothing if it owns it not.
    void retire_range(std::uint32_t range);
    bool owns(resource_id id) const noexcept { return slot_of(id) != no_slot; }
    /// Ids that are free now.
    std::size_t free_ids() const noexcept { return unused_ + freed_; }

    /// Registers a resource of `context`, and gives it an id; `none` when no id is free. A context
    /// is a resource of itself: `context` is `none` for one. It gets the id `wanted`, if that is
    /// not none: one of a retired range, or one that was given out before, and is free; else none.
    /// Precondition: no attribute of `what` is open.
    resource_id add(resource_id context, attribute_view what,
                    resource_id wanted = resource_id::none);
    /// False: there is none of that id.
    bool remove(resource_id id) noexcept;
    /// That resource, which is there, has these attributes from now on. It keeps its place in the
    /// lists of those that it had before.
    void change(resource_id id, attribute_view what);

    struct found {
        resource_id id = resource_id::none;
        resource_id context = resource_id::none;
        attribute_view what;  ///< Until it is removed.

        /// It has all attributes of `query` that are not open.
        bool fits(const attribute_view& query) const noexcept;
    };
    /// `id` is none: there is no such resource.
    found find(resource_id id) const noexcept;
    /// The resource that was registered first of those that have all attributes of `query` that are
    /// not open.
    found find_first(const attribute_view& query) const noexcept {
        std::size_t looks = ~std::size_t{0};
        return find_first(query, looks);
    }
    /// The same, but looks at `looks` resources at most, which it counts down: none, and 0 left, is
    /// not decided yet.
    found find_first(const attribute_view& query, std::size_t& looks) const noexcept;
    /// Some resource of that context; `none` when it has no more.
    resource_id first_of(resource_id context) const noexcept;

    /// The same for equal names with equal values, in this store.
    std::uint64_t key_of(const attribute& one) const noexcept;
    /// As key_of() of an attribute that all answers to `query` have; key_of_all if it names none.
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
        std::uint32_t places = posting_lists::none;  // In the lists: the first of them.
        std::uint32_t freed_after = no_slot;         // While it is free.
    };
    std::uint32_t slot_of(resource_id id) const noexcept;
    resource_id id_of(std::uint32_t slot) const noexcept;
    found found_at(std::uint32_t slot) const noexcept;
    bool is_retired(std::uint32_t slot) const noexcept { return retired_[slot / ids_per_range]; }
    void skip_retired() noexcept;
    void put_with_freed(std::uint32_t slot) noexcept;
    void take_from_freed(std::uint32_t slot) noexcept;
    std::uint32_t free_slot(resource_id wanted) const noexcept;
    void put_into_lists(std::uint32_t slot);
    static std::unique_ptr<std::uint64_t[]> copy_of(const attribute_view& what);

    std::uint64_t key_of_context(resource_id context) const noexcept;
    /// The key of the shortest list that holds all answers.
    std::uint64_t shortest(const attribute_view& query) const noexcept;

    const std::uint64_t seed_;                // So that nobody can choose what falls together.
    std::vector<std::uint32_t> owned_;        // Ranges, in the order of their slots.
    std::vector<bool> retired_;               // As those.
    std::vector<std::uint16_t> range_order_;  // By range: its place in there, and 1; else 0.
    std::vector<record> records_;             // By slot.
    std::uint32_t first_freed_ = no_slot;     // The longest ago.
    std::uint32_t last_freed_ = no_slot;
    std::uint32_t fresh_ = 1;  // Slots from here on were never used; 0 is no id.
    posting_lists lists_;
    std::size_t size_ = 0;
    std::size_t freed_ = 0;
    std::size_t unused_ = 0;  // From `fresh_` on.
};

/// A query with many answers, while resources come and go: whatever fits from its start to its end
/// is found once, in the order of registration; what comes or goes meanwhile, once at most.
///
/// Owner:   borrows the store; owns a copy of the query.
/// Threads: the store's.
class store_search {
public:
    store_search(resource_store& in, attribute_view query);
    store_search(const store_search&) = delete;
    store_search& operator=(const store_search&) = delete;
    ~store_search();

    /// The next answer after looking at `looks` resources at most. `over`: none is left now.
    enum class outcome : std::uint8_t { found, unfinished, over };
    outcome next(resource_store::found& into, std::size_t looks) noexcept;

    const attribute_list& query() const noexcept { return query_; }

private:
    resource_store& store_;
    attribute_list query_;
    std::uint32_t mark_;  // In the list that is walked: behind what was looked at.
};

}  // namespace amalgam::detail
