-- Each lease blocks its whole group, so this is no longer used; see core/queue/delivery.py, rule 2.

alter table inturn_hold drop column extended;
alter table inturn_lease drop column extended;
