-- Each lease blocks its whole group, so that only servers of the previous version use this column; see rule 2 in
-- core/queue/delivery.py. A later version removes it.

alter table inturn_hold alter column extended set default false;
