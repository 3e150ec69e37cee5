// An environment of vector/environment.h as bytes that last: a header, the environment, its newest
// rows and its stack of observations. They are checked as those of env/snapshot.h.
#pragma once

#include "env/snapshot.h"
#include "vector/environment.h"

namespace jaxrl {

// Raise the lower half with every change of a struct that is in it or of what its values mean.
constexpr u32 kVectorSnapshotVersion = kSnapshotVersion << 16 | 2;

struct VectorSnapshot {
  u32 version;
  u32 size;       // of the whole, with the rows and the stack
  u64 cartridge;  // digest of its image
  u64 rules;      // digest of the options
  u64 sum;        // digest of what follows
};

// An environment with its rows and its stack, wherever they lie.
struct VectorParts {
  VectorGame* env;
  History history;
  u8* stack;
  size_t stack_size;

  size_t size() const {
    return sizeof(VectorSnapshot) + sizeof *env + history.kept * sizeof(Played) + stack_size;
  }
};

inline u64 digest_of(const VectorRules& rules) {
  return digest_of((const u8*)&rules, offsetof(VectorRules, actions) + sizeof rules.actions);
}

inline bool is_possible(const Input& input) {
  return input.action >= 0 && input.action < kActions && std::fabs(input.strength) <= 1;
}

inline bool is_possible(const Played& played, const Cartridge& cartridge, const VectorRules& rules,
                        size_t starts) {
  const i32 most = std::max(rules.frame_skip, rules.noop_max + 1);
  return is_possible(played.before, cartridge) && is_possible(played.first) &&
         is_possible(played.then) && played.frames >= 0 && played.frames <= most &&
         played.start >= kExactStart && played.start < (i32)std::max<size_t>(starts, 1) &&
         is_flag(played.is_reset) && (starts || !played.is_reset || played.start == kExactStart);
}

inline bool is_possible(const VectorGame& env, const Cartridge& cartridge,
                        const VectorRules& rules) {
  return is_possible(env.game, cartridge) && is_possible(env.held) && env.frames >= 0 &&
         env.frames <= rules.max_frames && env.oldest < (u32)rules.stack && is_flag(env.over) &&
         is_flag(env.life_lost) && env.noop_draws.next <= Twister::kWords &&
         env.sticky_draws.next <= Twister::kWords;
}

// Writes a snapshot of `parts.size()` bytes.
inline void save(const VectorParts& parts, const Cartridge& cartridge, const VectorRules& rules,
                 u8* out) {
  VectorSnapshot header{kVectorSnapshotVersion, (u32)parts.size(), cartridge.digest,
                        digest_of(rules), 0};
  u8* at = out + sizeof header;
  const auto put = [&](const void* from, size_t size) {
    memcpy(at, from, size);
    at += size;
  };
  put(parts.env, sizeof *parts.env);
  put(parts.history.rows, parts.history.kept * sizeof(Played));
  put(parts.stack, parts.stack_size);
  header.sum = digest_of(out + sizeof header, header.size - sizeof header);
  memcpy(out, &header, sizeof header);
}

// Reads a snapshot into its parts; where it is refused they hold nothing of use.
inline Refusal load(const u8* bytes, const Cartridge& cartridge, const VectorRules& rules,
                    size_t starts, const VectorParts& parts) {
  VectorSnapshot header;
  memcpy(&header, bytes, sizeof header);
  if (header.version != kVectorSnapshotVersion || header.size != parts.size() ||
      header.rules != digest_of(rules))
    return Refusal::kVersion;
  if (header.cartridge != cartridge.digest) return Refusal::kCartridge;
  const u8* at = bytes + sizeof header;
  if (header.sum != digest_of(at, header.size - sizeof header)) return Refusal::kDamaged;
  const auto take = [&](void* to, size_t size) {
    memcpy(to, at, size);
    at += size;
  };
  take((void*)parts.env, sizeof *parts.env);
  take((void*)parts.history.rows, parts.history.kept * sizeof(Played));
  take(parts.stack, parts.stack_size);
  bool possible = is_possible(*parts.env, cartridge, rules);
  for (u32 row = 0; row < parts.history.kept; row++)
    possible &= is_possible(parts.history.rows[row], cartridge, rules, starts);
  return possible ? Refusal::kNone : Refusal::kDamaged;
}

}  // namespace jaxrl
