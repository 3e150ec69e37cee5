// Written by tools/emulator_tables.py.
// The kernels and the host's program are made by different compilers, which must lay out what they
// share alike: both compare it with these numbers.
#pragma once

#include "gpu/world.h"

namespace jaxrl {

#if JAXRL_HOST
#define JAXRL_BEGINS(type, member, at) static_assert(offsetof(type, member) == (at))
#else
#define JAXRL_BEGINS(type, member, at) static_assert(__INTADDR__(&((type*)nullptr)->member) == (at))
#endif
static_assert(sizeof(Environment) % 8 == 0 && alignof(Snapshot) == 8);
static_assert(sizeof(World) == 1976000);
static_assert(sizeof(Cartridge) == 18536);
static_assert(sizeof(Rules) == 44);
static_assert(sizeof(Start) == 120576);
static_assert(sizeof(Screens) == 120064);
static_assert(sizeof(Snapshot) == 1488);
static_assert(sizeof(Environment) == 472);
static_assert(sizeof(Turn) == 968);
static_assert(sizeof(Game) == 456);
static_assert(sizeof(Console) == 440);
static_assert(sizeof(Row) == 12);
static_assert(sizeof(Picture) == 8312);
static_assert(sizeof(Sight) == 16632);
static_assert(sizeof(Slot) == 232512);
static_assert(sizeof(Launch) == 120);
JAXRL_BEGINS(World, rules, 18536);
JAXRL_BEGINS(World, game, 18580);
JAXRL_BEGINS(World, halves, 18600);
JAXRL_BEGINS(World, rows, 18604);
JAXRL_BEGINS(World, columns, 34564);
JAXRL_BEGINS(World, starts, 46784);
JAXRL_BEGINS(Cartridge, data, 16448);
JAXRL_BEGINS(Cartridge, mapper, 18496);
JAXRL_BEGINS(Cartridge, piece, 18504);
JAXRL_BEGINS(Cartridge, digest, 18512);
JAXRL_BEGINS(Cartridge, setup, 18520);
JAXRL_BEGINS(Cartridge, needed, 18532);
JAXRL_BEGINS(Rules, actions, 17);
JAXRL_BEGINS(Rules, frame_skip, 35);
JAXRL_BEGINS(Rules, mode, 36);
JAXRL_BEGINS(Rules, difficulty, 40);
JAXRL_BEGINS(Start, screens, 512);
JAXRL_BEGINS(Screens, held, 80000);
JAXRL_BEGINS(Screens, newest, 120008);
JAXRL_BEGINS(Snapshot, env, 24);
JAXRL_BEGINS(Snapshot, turn, 496);
JAXRL_BEGINS(Snapshot, row, 1464);
JAXRL_BEGINS(Snapshot, rules, 1480);
JAXRL_BEGINS(Environment, random, 456);
JAXRL_BEGINS(Environment, held, 471);
JAXRL_BEGINS(Turn, actions, 472);
JAXRL_BEGINS(Turn, rows, 488);
JAXRL_BEGINS(Turn, whole, 489);
JAXRL_BEGINS(Turn, last, 496);
JAXRL_BEGINS(Game, progress, 440);
JAXRL_BEGINS(Console, tia, 144);
JAXRL_BEGINS(Console, cpu, 248);
JAXRL_BEGINS(Console, cartridge, 264);
JAXRL_BEGINS(Console, cycle, 400);
JAXRL_BEGINS(Console, bus, 436);
JAXRL_BEGINS(Console, needed, 438);
JAXRL_BEGINS(Row, reset, 11);
JAXRL_BEGINS(Picture, clock, 104);
JAXRL_BEGINS(Picture, writes, 116);
JAXRL_BEGINS(Sight, seen, 16624);
JAXRL_BEGINS(Sight, start, 16625);
JAXRL_BEGINS(Slot, screens, 384);
JAXRL_BEGINS(Slot, gray, 120448);
JAXRL_BEGINS(Slot, writes, 187648);
JAXRL_BEGINS(Launch, reward, 32);
JAXRL_BEGINS(Launch, sights, 80);
JAXRL_BEGINS(Launch, again, 96);
JAXRL_BEGINS(Launch, count, 104);
JAXRL_BEGINS(Launch, num_slots, 112);
#undef JAXRL_BEGINS

}  // namespace jaxrl
